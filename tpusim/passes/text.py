"""The text form of pipelines: `builtin.module(func.func(canonicalize),convert-top-to-tpu{chip=bm1688 mode=int8})`.

As MLIR writes them. A value needs quotation marks only where it contains a space, a comma, a bracket or a quotation
mark; several values of an option are separated by commas. A name is that of a pass or of a pipeline, whose options go
to the passes that have them.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from tpusim.errors import ConfigError, meant
from tpusim.passes.base import ANCHORS, Codec, Pass, Pipeline
from tpusim.passes.foreign import Foreign, foreign_pass
from tpusim.registry import PASSES, PIPELINES

OPEN, CLOSE = "({", ")}"
SPACES = " \t\r\n"
PLAIN = re.compile(r"[A-Za-z0-9_./:+-]+")
"""Values that need no quotation marks."""
NAME = re.compile(r"[A-Za-z0-9_.-]+")
Options = Mapping[str, tuple[str, ...] | None]
"""The texts of each option's values, still in their quotation marks; None where it has no `=`."""


DEEPEST = 100
"""Brackets of a pipeline; Python's stack holds several hundred of them in one another."""


def parse_pipeline(text: str) -> Pipeline:
    """The pipeline that a text describes. Raises ConfigError for what is no pipeline, pass or option."""
    if text.count("(") > DEEPEST:
        raise ConfigError(f"pipeline: at most {DEEPEST} brackets are required, got {text.count('('):,}")
    steps = tuple(_steps(text))
    if len(steps) == 1 and isinstance(steps[0], Pipeline) and steps[0].at == ANCHORS[0]:
        return steps[0]
    return Pipeline(steps)


def pass_of(name: str, options: str) -> Pass:
    """The pass or pipeline of a name with options as `a=b c=d`. Raises ConfigError."""
    return _made(name, options, f"{name}{{{options}}}")


def print_pipeline(step: Pass) -> str:
    """The text of a pass or pipeline; `parse_pipeline` reads it. Raises ConfigError for an option that has no text."""
    if isinstance(step, Pipeline):
        return f"{step.at}({','.join(map(print_pipeline, step.steps))})"
    if isinstance(step, Foreign):
        return step.text
    options = " ".join(
        f"{field.name}={_written(step, field.name, value)}"
        for field in fields(step)
        if (value := getattr(step, field.name)) != _default(field)
    )
    return f"{step.name}{{{options}}}" if options else step.name


# ------------------------------------------------------------------------------------------------------------- reading


def _steps(text: str) -> Iterator[Pass]:
    if not text.strip():
        return
    for element in _split(text, ","):
        found = NAME.match(element.strip())
        if found is None:
            raise ConfigError(f"pipeline '{text}': a pass is required between commas, got '{element}'")
        name, rest = found[0], element.strip()[found.end() :]
        if rest[:1] == "(":
            if name not in ANCHORS or rest[-1] != ")":
                raise ConfigError(
                    f"pipeline '{element}': ANCHOR(PASSES) is required, ANCHOR one of {', '.join(ANCHORS)}"
                )
            yield Pipeline(tuple(_steps(rest[1:-1])), name)
        elif not rest or (rest[0], rest[-1]) == ("{", "}"):
            yield _made(name, rest[1:-1], element)
        else:
            raise ConfigError(f"pipeline '{element}': NAME or NAME{{OPTION=VALUE ...}} is required")


def _made(name: str, text: str, where: str) -> Pass:
    listed = list(_options(text, where))
    options = dict(listed)
    if len(options) < len(listed):
        raise ConfigError(f"pipeline '{where}': each option once is required, got {' '.join(key for key, _ in listed)}")
    if name in PIPELINES:
        pipeline: Any = PIPELINES.get(name)
        if not isinstance(pipeline, Pipeline):
            raise ConfigError(f"pipeline '{name}': a tpusim.passes.Pipeline is required, got {pipeline!r}")
        return _with_options(pipeline, options, name)
    if name not in PASSES and (foreign := foreign_pass(name, where)) is not None:
        return foreign
    if name not in PASSES:
        known = (*PASSES.names(), *PIPELINES.names())
        raise ConfigError(
            f"pipeline '{where}': no pass is called '{name}'{meant(name, known)}; the passes are {', '.join(known)}"
        )
    cls: Any = PASSES.get(name)
    if not isinstance(cls, type) or not issubclass(cls, Pass) or cls.name != name:
        raise ConfigError(f"pass '{name}': a subclass of tpusim.passes.Pass of that name is required, got {cls!r}")
    return cls(**_values(cls, options, name))


def _with_options(pipeline: Pipeline, options: Options, name: str) -> Pipeline:
    """The pipeline, each option given to the passes that have it. Raises ConfigError for an option that no pass has."""
    known = {field.name for step in pipeline.flat() for field in fields(step)}
    _require_known(name, options, sorted(known))

    def given(step: Pass) -> Pass:
        if isinstance(step, Pipeline):
            return Pipeline(tuple(map(given, step.steps)), step.at)
        mine = {field.name for field in fields(step)}
        present = {field.name: getattr(step, field.name) for field in fields(step)}
        return type(step)(**present | _values(type(step), {k: v for k, v in options.items() if k in mine}, step.name))

    found = given(pipeline)
    assert isinstance(found, Pipeline)
    return found


def _options(text: str, where: str) -> Iterator[tuple[str, tuple[str, ...] | None]]:
    for option in _split(text, SPACES):
        name, equals, values = option.partition("=")
        if not option.strip():
            continue
        if not NAME.fullmatch(name):
            raise ConfigError(f"pipeline '{where}': OPTION=VALUE is required between spaces, got '{option}'")
        yield name.replace("-", "_"), (tuple(_split(values, ",")) if values else ()) if equals else None


def _split(text: str, separators: str) -> Iterator[str]:
    """The parts between letters that separate, outside quotation marks and brackets, which must be closed."""
    begin, depth, quoted = 0, list[str](), False
    for i, letter in enumerate(text):
        if letter == '"' and (not quoted or not _escaped(text, i)):
            quoted = not quoted
        elif quoted:
            continue
        elif letter in OPEN:
            depth.append(CLOSE[OPEN.index(letter)])
        elif letter in CLOSE and (not depth or depth.pop() != letter):
            raise ConfigError(f"pipeline '{text}': '{letter}' at {i + 1} closes nothing; remove it")
        elif letter in separators and not depth:
            yield text[begin:i]
            begin = i + 1
    if quoted or depth:
        raise ConfigError(f"pipeline '{text}': {depth[-1] if depth else chr(34)} is required at the end, it is missing")
    yield text[begin:]


def _escaped(text: str, at: int) -> bool:
    """Whether an odd number of backslashes stands before a position."""
    return bool((at - len(text[:at].rstrip("\\"))) % 2)


def _values(cls: type[Pass], options: Options, name: str) -> dict[str, Any]:
    known = {field.name for field in fields(cls)}
    _require_known(name, options, sorted(known))
    hints = get_type_hints(cls)
    return {key: _value(cls, key, hints[key], texts) for key, texts in options.items()}


def _require_known(name: str, options: Options, known: list[str]) -> None:
    for key in options:
        if key not in known:
            listed = ", ".join(known) or "none"
            raise ConfigError(f"{name}: no option is called '{key}'{meant(key, known)}; its options are {listed}")


def _value(cls: type[Pass], key: str, hint: Any, texts: tuple[str, ...] | None) -> Any:
    leaves = set(_leaves(hint))
    if texts is None:
        if bool not in leaves:
            raise ConfigError(f"{cls.name}: {key}=VALUE is required, got '{key}' without a value")
        return True
    if key in cls.codecs:
        return cls.codecs[key].read(_unquoted(",".join(texts)))
    values = tuple(_leaf(cls, key, leaves, text) for text in texts)
    if any(get_origin(one) is tuple for one in (hint, *get_args(hint))):
        return values
    if len(values) > 1:
        raise ConfigError(f"{cls.name}: one value of {key} is required, got {','.join(texts)}; quote a comma")
    return values[0] if values else (None if NoneType in leaves else _leaf(cls, key, leaves, '""'))


def _leaves(hint: Any) -> Iterator[Any]:
    """The types that values of an option have, and the values themselves where only some are allowed."""
    arguments = get_args(hint)
    if not arguments:
        yield hint
    for one in arguments:
        yield from _leaves(one) if one is not ... else ()


def _leaf(cls: type[Pass], key: str, leaves: set[Any], text: str) -> Any:
    """One value. Raises ConfigError for another than the option takes."""
    plain = _unquoted(text)
    words = {leaf for leaf in leaves if isinstance(leaf, str)}
    if bool in leaves and plain.lower() in ("true", "false"):
        return plain.lower() == "true"
    if str in leaves or plain in words:
        return plain
    for kind in (int, float):
        if kind in leaves:
            try:
                return kind(plain)
            except ValueError:
                continue
    wanted = ", ".join(sorted(words)) or " or ".join(sorted(leaf.__name__ for leaf in leaves if leaf is not NoneType))
    raise ConfigError(f"{cls.name}: {key} requires {wanted}, got '{plain}'")


def _unquoted(text: str) -> str:
    if not text.startswith('"'):
        return text
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigError(f"pipeline: a text in quotation marks is required, got {text}: {error}") from error


# ------------------------------------------------------------------------------------------------------------- writing


def _default(field: Any) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _written(step: Pass, name: str, value: Any) -> str:
    codec: Codec | None = step.codecs.get(name)
    if codec is not None:
        return _quoted(codec.write(value))
    if isinstance(value, tuple):
        return ",".join(_written(step, name, one) for one in value)  # type: ignore[reportUnknownVariableType]
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return _quoted(value)
    raise ConfigError(f"{step.name}: {name} of a pipeline's text is a number, bool or text, got {type(value).__name__}")


def _quoted(text: str) -> str:
    return text if PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)
