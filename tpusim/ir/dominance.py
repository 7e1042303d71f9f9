"""Dominance: the blocks that every path from a region's entry to a block passes, as a walk of their tree."""

from collections.abc import Iterator

from xdsl.ir import Block, Region


def walk_dominated(region: Region) -> Iterator[tuple[Block, bool]]:
    """Each reachable block twice: (block, True) before all blocks that it dominates, (block, False) after them.

    No block is left before the blocks that it dominates are. Takes no stack and, but for strange graphs, linear time.
    """
    if region.first_block is None:
        return
    below = _children(region.first_block)
    left = [(region.first_block, False), (region.first_block, True)]
    while left:
        block, enters = left.pop()
        yield block, enters
        if enters:
            left += (step for child in reversed(below[block]) for step in ((child, False), (child, True)))


def _children(entry: Block) -> dict[Block, list[Block]]:
    """The reachable blocks that each immediately dominates (Cooper, Harvey and Kennedy 2001)."""
    order = _before_successors(entry)
    place = {block: number for number, block in enumerate(order)}
    sources: list[list[int]] = [[] for _ in order]
    for number, block in enumerate(order):
        for successor in _successors(block):
            sources[place[successor]].append(number)
    above = [0] + [-1] * (len(order) - 1)

    def common(one: int, other: int) -> int:
        while one != other:
            if one > other:
                one = above[one]
            else:
                other = above[other]
        return one

    changed = True
    while changed:
        changed = False
        for number in range(1, len(order)):
            known = [source for source in sources[number] if above[source] >= 0]
            found = known[0]
            for source in known[1:]:
                found = common(found, source)
            changed, above[number] = changed or above[number] != found, found
    children: dict[Block, list[Block]] = {block: [] for block in order}
    for number in range(1, len(order)):
        children[order[above[number]]].append(order[number])
    return children


def _before_successors(entry: Block) -> list[Block]:
    """The reachable blocks; each but for circles before its successors (reverse postorder)."""
    found, seen, open_ = list[Block](), {entry}, [(entry, iter(_successors(entry)))]
    while open_:
        block, rest = open_[-1]
        successor = next((one for one in rest if one not in seen), None)
        if successor is None:
            found.append(block)
            open_.pop()
        else:
            seen.add(successor)
            open_.append((successor, iter(_successors(successor))))
    return found[::-1]


def _successors(block: Block) -> tuple[Block, ...]:
    return () if block.last_op is None else tuple(block.last_op.successors)
