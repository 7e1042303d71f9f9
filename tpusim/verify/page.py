"""`report.html`: the content of `report.json` as one self-contained page, without scripts and external resources.

Every text that comes from a model goes through `html.escape`.
"""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

Json = dict[str, Any]

STYLE = """
:root { color-scheme: light; --line: #e3e6ea; --soft: #f6f7f9; --text: #1d2430; --dim: #667085;
  --good: #12744a; --good-soft: #e4f5ec; --bad: #b42318; --bad-soft: #fdeaea; --fair: #8a5a00; --fair-soft: #fdf3dc; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1180px; padding: 2rem 1.5rem 4rem; color: var(--text); background: #fff;
  font: 14px/1.5 system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
h1 { font-size: 1.6rem; margin: 0 0 .2rem; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 2.2rem 0 .6rem; }
p { margin: .3rem 0; } .dim { color: var(--dim); }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .32rem .6rem; text-align: left; border-bottom: 1px solid var(--line); vertical-align: top; }
th { color: var(--dim); font-weight: 600; background: var(--soft); position: sticky; top: 0; white-space: nowrap; }
td.number, th.number { text-align: right; white-space: nowrap; }
td.name { font-family: ui-monospace, Menlo, Consolas, monospace; font-size: .92em; overflow-wrap: anywhere; }
.tag { display: inline-block; padding: 0 .5em; border-radius: .7em; font-size: .86em; font-weight: 600;
  white-space: nowrap; }
.good { color: var(--good); background: var(--good-soft); } .bad { color: var(--bad); background: var(--bad-soft); }
.fair { color: var(--fair); background: var(--fair-soft); }
.cards { display: flex; flex-wrap: wrap; gap: .7rem; margin-top: .6rem; }
.card { border: 1px solid var(--line); border-radius: .5rem; padding: .5rem .9rem; min-width: 8.5rem; }
.cards + table { margin-top: .9rem; }
.card b { display: block; font-size: 1.15rem; font-weight: 600; font-variant-numeric: tabular-nums; }
.bar { position: relative; width: 9rem; height: .55rem; border-radius: .3rem; background: var(--line); overflow: hidden;
  margin-top: .25rem; } .bar i { position: absolute; inset: 0 auto 0 0; background: #4a7bd0; }
.bar i.full { background: var(--bad); }
.narrow { max-width: 24rem; }
details { border: 1px solid var(--line); border-radius: .5rem; margin: .6rem 0; }
summary { cursor: pointer; padding: .5rem .8rem; font-weight: 600; }
.scroll { max-height: 34rem; overflow: auto; border-top: 1px solid var(--line); }
"""

VERDICT_CLASS = {"EQUAL": "good", "CLOSE": "good", "SIMILAR": "fair"}
COMPARISON_TITLES = {
    "top_vs_onnx": "top module against ONNX Runtime",
    "tpu_vs_top": "quantised model against float model",
    "local_vs_tpu": "executed commands against the flat model",
}
BOUNDS = {
    "tiu": "TIU",
    "gdma": "GDMA",
    "dependency": "waiting for the other engine",
    "sync": "synchronisation",
}
"""What bounds a group or op -> how the page says it."""


def report_page(report: Json) -> str:
    """The page of one report, given as the object that `report.json` holds."""
    sections = [
        _header(report),
        _section("Totals", _totals(report)),
        _section("Comparisons", _comparisons(report["compare"])),
        *([_section("Fidelity", _fidelity(report["fidelity"]))] if "fidelity" in report else []),
        _section("Tensors", "".join(_tensors(name, c) for name, c in report["compare"].items())),
        _section("Layer groups", _groups(report["groups"])),
        *([_section("Engines", _engines(report["engines"]))] if "engines" in report else []),
        _section("Stages", _stages(report["stages"])),
    ]
    title = escape(f"tpusim: {report['model']} on {report['chip']}")
    return (
        f'<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<style>{STYLE}</style></head>\n'
        f"<body>\n{''.join(sections)}</body>\n</html>\n"
    )


def _header(report: Json) -> str:
    mode = report["mode"] + (" asymmetric" if report["asymmetric"] else "")
    return (
        f"<h1>{escape(report['model'])} {_tag('PASSED', 'good') if report['passed'] else _tag('FAILED', 'bad')}</h1>\n"
        f"<p class='dim'>{escape(report['chip'])}, {escape(mode)}, tpusim {escape(report['tpusim'])}</p>\n"
    )


def _bounds(totals: Json) -> dict[str, str]:
    """How far the program is above what must move and what must be multiplied."""
    found: dict[str, str] = {}
    if totals.get("traffic_ratio"):
        found[f"moved, of {_bytes(totals['compulsory_bytes'])} that must"] = f"{totals['traffic_ratio']:.2f} ×"
    if totals.get("cycle_ratio"):
        found[f"cycles, of {totals['mac_cycles']:,} MAC-bound"] = f"{totals['cycle_ratio']:.2f} ×"
    return found


def _clock(totals: Json) -> dict[str, str]:
    """The time before it is multiplied by what measured times are to it."""
    factor = totals.get("time_factor", 1)
    return {} if factor == 1 else {f"on the clock, × {factor:.2f}": f"{totals['clock_milliseconds']:,.3f} ms"}


def _totals(report: Json) -> str:
    totals, memory = report["totals"], report["memory"]
    cards = {
        "estimated time": f"{totals['milliseconds']:,.3f} ms",
        **_clock(totals),
        "cycles": f"{totals['cycles']:,}",
        "multiply-adds": f"{totals['macs']:,}",
        "commands": f"{totals['commands']:,}",
        "loaded": _bytes(totals["load_bytes"]),
        "stored": _bytes(totals["store_bytes"]),
        **_bounds(totals),
        "weights in memory": _bytes(memory["coeff_bytes"]),
        "activations in memory": _bytes(memory["neuron_bytes"]),
    }
    if (accuracy := report.get("accuracy")) is not None:
        cards["samples"] = f"{accuracy['samples']:,}"
        cards["top-1 in float"] = f"{accuracy['float_top1']:.2%}"
        cards["top-1 quantised, flat"] = f"{accuracy['int8_top1']:.2%}"
        if accuracy["local_samples"]:
            cards["top-1 local memory"] = f"{accuracy['local_top1']:.2%}"
            cards["bit-exact samples"] = f"{accuracy['local_bit_exact_samples']:,} of {accuracy['local_samples']:,}"
    content = "".join(
        f"<div class='card'><b>{value}</b><span class='dim'>{name}</span></div>" for name, value in cards.items()
    )
    return f"<div class='cards'>{content}</div>\n"


def _comparisons(comparisons: Json) -> str:
    rows = [
        (
            escape(COMPARISON_TITLES.get(name, name)),
            f"{c['compared']:,}",
            f"{c['missing']:,}",
            _measure(c["min_cosine"]) if c["compared"] else "-",
            _measure(c["min_euclidean"]) if c["compared"] else "-",
            escape(c["worst"] or "-"),
            "yes" if c["bit_exact"] else "no",
            ", ".join(f"{value:g}" for value in c["tolerance"]),
            _outcome(c),
        )
        for name, c in comparisons.items()
    ]
    header = ("comparison", "#tensors", "#missing", "#worst cosine", "#worst euclidean", "@worst tensor")
    return _table((*header, "bit exact", "tolerance", "verdict"), rows)


def _fidelity(card: Json) -> str:
    """How many ops are exact to the specification, which decisions the others follow, which fall back to float."""
    cards = {
        "exact to spec": card["exact"],
        "follow a decision": card["decision"],
        "fall back to float": card["float"],
        "casts": card["casts"],
    }
    content = "".join(
        f"<div class='card'><b>{count:,}</b><span class='dim'>{name}</span></div>" for name, count in cards.items()
    )
    parts = [f"<div class='cards'>{content}</div>\n"]
    if card["decisions"]:
        rows = [(escape(d["decision"]), escape(d["says"]), escape(", ".join(d["ops"]))) for d in card["decisions"]]
        parts.append(_table(("decision", "it says", "@ops"), rows))
    if card["fallbacks"]:
        rows = [
            (escape(f["op"]), escape(f["kind"]), escape(f["number"]), escape(f["reason"])) for f in card["fallbacks"]
        ]
        table = _table(("@op", "@kind", "runs in", "why"), rows)
        title = f"Float fallbacks <span class='dim'>({len(rows):,} ops)</span>"
        parts.append(f"<details open><summary>{title}</summary><div class='scroll'>{table}</div></details>\n")
    return "".join(parts)


def _outcome(comparison: Json) -> str:
    if not comparison["compared"]:
        return _tag("NOTHING COMPARED", "bad")
    return _tag("PASSED", "good") if comparison["passed"] else _tag("FAILED", "bad")


def _tensors(name: str, comparison: Json) -> str:
    tensors = sorted(comparison["tensors"], key=_badness)
    rows = [
        (
            escape(t["name"]),
            _tag(t["verdict"], VERDICT_CLASS.get(t["verdict"], "bad")),
            _measure(t["cosine"]),
            _measure(t["euclidean"]),
            "" if t["sqnr_db"] is None else f"{t['sqnr_db']:.1f}",
            "yes" if t["bit_exact"] else "no",
            f"{t['dtype']} {'x'.join(map(str, t['shape']))}",
        )
        for t in tensors
    ]
    table = _table(("@tensor", "verdict", "#cosine", "#euclidean", "#SQNR dB", "bit exact", "type"), rows)
    title = escape(COMPARISON_TITLES.get(name, name))
    opened = "" if comparison["passed"] and comparison["compared"] else " open"
    return (
        f"<details{opened}><summary>{title} <span class='dim'>({len(rows):,} tensors, worst first)</span></summary>"
        f"<div class='scroll'>{table}</div></details>\n"
    )


def _badness(tensor: Json) -> tuple[bool, float, float]:
    """Failing tensors first, then by cosine and euclidean similarity; unmeasurable ones before all measured ones."""
    cosine, euclidean = tensor["cosine"], tensor["euclidean"]
    return tensor["passed"], -1e9 if cosine is None else cosine, -1e9 if euclidean is None else euclidean


def _sections(group: Json) -> str:
    if group["reason"]:
        return f"global: {group['reason']}"
    return "×".join(str(group["secs"][axis]) for axis in "ncdhw")


def _groups(groups: Sequence[Json]) -> str:
    if not groups:
        return "<p class='dim'>No layer group.</p>\n"
    rows = [
        (
            str(group["id"]),
            escape(", ".join(group["ops"])),
            escape(_sections(group)),
            _bar(group["lmem_peak_bytes"], group["lmem_bytes"]),
            _bytes(group["load_bytes"]),
            _bytes(group["store_bytes"]),
            f"{group['cycles']:,}",
            _bound(group),
        )
        for group in groups
    ]
    header = ("#id", "@ops", "sections n×c×d×h×w", "local memory, peak per lane", "#loaded", "#stored", "#cycles")
    return f"<div class='scroll'>{_table((*header, 'bound by'), rows)}</div>\n"


def _bound(work: Json) -> str:
    name = str(work["bound"])
    return escape(BOUNDS.get(name, name))


def _engines(engines: Json) -> str:
    """Busy shares, how much they overlap, and the ops that take longest with what bounds them."""
    cards = {
        "TIU busy": f"{engines['tiu_busy']:.0%}",
        "GDMA busy": f"{engines['gdma_busy']:.0%}",
        "both at once": f"{engines['both_busy']:.0%}",
        "parallelism": f"{engines['parallelism']:.2f}",
        "bound by": _bound(engines),
    }
    content = "".join(
        f"<div class='card'><b>{value}</b><span class='dim'>{name}</span></div>" for name, value in cards.items()
    )
    ops = sorted(engines["ops"], key=lambda op: -max(op["tiu_cycles"], op["gdma_cycles"]))
    rows = [
        (
            escape(op["op"]),
            str(op["group"]),
            *(f"{op[key]:,}" for key in ("tiu_cycles", "gdma_cycles", "dependency_cycles", "sync_cycles")),
            _bound(op),
        )
        for op in ops
    ]
    header = (
        "@op",
        "#group",
        "#TIU cycles",
        "#GDMA cycles",
        "#waits for the other",
        "#waits to synchronise",
        "bound by",
    )
    title = f"Ops <span class='dim'>({len(rows):,}, the longest first)</span>"
    return (
        f"<div class='cards'>{content}</div>\n"
        f"<details><summary>{title}</summary><div class='scroll'>{_table(header, rows)}</div></details>\n"
    )


def _stages(stages: Sequence[Json]) -> str:
    rows = [(escape(stage["name"]), f"{stage['seconds']:.2f} s") for stage in stages]
    rows.append(("<b>total</b>", f"<b>{sum(stage['seconds'] for stage in stages):.2f} s</b>"))
    return f"<div class='narrow'>{_table(('stage', '#time'), rows)}</div>\n"


def _section(title: str, content: str) -> str:
    return f"<h2>{title}</h2>\n{content}"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are HTML already; `#` before a header makes a column of numbers, `@` one of names."""
    kinds = [{"#": " class='number'", "@": " class='name'"}.get(title[0], "") for title in header]
    titles = [title.lstrip("#@") for title in header]
    head = "".join(
        f"<th{kind if 'number' in kind else ''}>{title}</th>" for kind, title in zip(kinds, titles, strict=True)
    )
    body = "\n".join(
        "<tr>" + "".join(f"<td{kind}>{cell}</td>" for kind, cell in zip(kinds, row, strict=True)) + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table>\n"


def _tag(text: str, kind: str) -> str:
    return f"<span class='tag {kind}'>{escape(text)}</span>"


def _bar(used: int, capacity: int) -> str:
    share = used / capacity if capacity else 0.0
    kind = " class='full'" if share > 1 else ""
    text = f"{_bytes(used)} of {_bytes(capacity)} ({share:.0%})"
    return f"{text}<div class='bar'><i{kind} style='width:{min(share, 1.0):.1%}'></i></div>"


def _measure(value: float | None) -> str:
    return "not a number" if value is None else f"{value:.6f}"


def _bytes(count: int) -> str:
    value = float(count)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:,.0f} {unit}" if unit == "B" else f"{value:,.1f} {unit}"
        value /= 1024
    return f"{value:,.1f} GiB"
