"""The compiled beam search behind `decoder.LatticeDecoder`: token passing with a lattice of forward links.

The algorithm, with its cut-offs and prunings, is that of Kaldi's LatticeFasterDecoder (D. Povey et al., "Generating exact lattices in the
WFST framework", ICASSP 2012, section 3), so that hypotheses and lattices agree:

* a *token* is a (frame, graph state) with the cost of the best path to it; a *link* is a graph arc between two tokens;
* `_cutoff` bounds a frame's tokens by the beam, narrowed so that about `max_active` survive and widened to keep `min_active`;
* `_emit` takes the surviving tokens one frame on, `follow_epsilons` then follows arcs without input in the same frame;
* every `prune_interval` frames `_prune` works out, from the newest frame backwards, by how much the best path through each link is worse
  than the best path overall (as far as it is known), and removes what is worse by more than `lattice_beam`.

Tokens and links live in two growing arrays of records, ordered by frame, from which pruning removes the dead by moving the living down.
A token is found from its graph state by `where[state]`, which holds for the present frame if it points at a token of this frame and this
state, so the array is never cleared. All arithmetic is float32, as Kaldi's.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pykaldist.kernels import kernel

INF = np.float32(np.inf)
NO_LINK = np.int32(-1)

#: A graph state: its arcs without input are begin:emit, the others emit:end.
STATE = np.dtype([("begin", "i4"), ("emit", "i4"), ("end", "i4"), ("final", "f4")])
#: A graph arc; the pdf is -1 on an arc without input.
ARC = np.dtype([("nextstate", "i4"), ("weight", "f4"), ("pdf", "i4")])
#: `cost` of the best path, relative to the offsets of the frames before; `extra`, by how much the best path through it is worse than the
#: best one, inf where the token is dead; graph `state`; `first` of its links.
TOKEN = np.dtype([("cost", "f4"), ("extra", "f4"), ("state", "i4"), ("first", "i4")])
#: `target` token, -1 where the link is dead; graph `arc`; `acoustic` cost, scaled, the frame's offset in it; `next` link of its token.
LINK = np.dtype([("target", "i4"), ("arc", "i4"), ("acoustic", "f4"), ("next", "i4")])
#: Search options, as `DecoderOptions`. (A record, not a class: compiled code in the cache must not refer to classes that may change.)
BEAMS = np.dtype([("beam", "f4"), ("lattice_beam", "f4"), ("max_active", "i8"), ("min_active", "i8"), ("prune_interval", "i8"),
                  ("beam_delta", "f4"), ("prune_scale", "f4")])


@kernel
def _larger(records: np.ndarray, size: int) -> np.ndarray:
    """A copy with room for at least twice `size` records."""
    larger = np.empty(2 * size, records.dtype)
    for i in range(len(records)):
        larger[i] = records[i]
    return larger


@kernel
def _nth(values: np.ndarray, n: int) -> np.float32:
    """The value at place n when `values` are sorted (Hoare's selection; reorders them)."""
    low, high = 0, len(values) - 1
    while low < high:
        pivot = values[(low + high) // 2]
        i, j = low, high
        while i <= j:
            while values[i] < pivot:
                i += 1
            while values[j] > pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if n <= j:
            high = j
        elif n >= i:
            low = i
        else:
            break
    return values[n]


@kernel
def _cutoff(tokens: np.ndarray, beams: np.record) -> tuple[np.float32, np.float32, int]:
    """Find the beam of a frame: (cost above which a token is not followed, beam for the next frame, index of the best token)."""
    best = 0
    cost = np.empty(len(tokens), np.float32)
    for i in range(len(tokens)):
        cost[i] = tokens[i].cost
        if cost[i] < cost[best]:
            best = i
    lowest = cost[best]
    by_beam = lowest + beams.beam
    if len(cost) > beams.max_active:
        by_max_active = _nth(cost, beams.max_active)
        if by_max_active < by_beam:
            return by_max_active, by_max_active - lowest + beams.beam_delta, best
    if len(cost) <= beams.min_active:
        return INF, INF, best
    within = 0
    for i in range(len(cost)):
        within += cost[i] <= by_beam
    if within > beams.min_active:
        return by_beam, beams.beam, best
    by_min_active = _nth(cost, beams.min_active)
    return by_min_active, by_min_active - lowest + beams.beam_delta, best


@kernel
def _emit(states: np.ndarray, arcs: np.ndarray, tokens: np.ndarray, links: np.ndarray, where: np.ndarray, begin: int, end: int,
          num_links: int, acoustic: np.ndarray, beams: np.record) -> tuple[np.ndarray, np.ndarray, int, int, np.float32]:
    """Take tokens begin:end one frame on, at cost `acoustic[pdf]`.

    Returns (tokens, links, number of tokens, of links, cut-off for the new tokens).
    """
    cutoff, beam, best = _cutoff(tokens[begin:end], beams)
    best += begin
    offset = -tokens[best].cost  # keeps costs near zero
    limit = INF
    state = states[tokens[best].state]
    for a in range(state.emit, state.end):
        limit = min(limit, arcs[a].weight + offset + acoustic[arcs[a].pdf] + tokens[best].cost + beam)
    room = 0
    for t in range(begin, end):
        if tokens[t].cost <= cutoff:
            room += states[tokens[t].state].end - states[tokens[t].state].emit
    if end + min(room, len(states)) > len(tokens):
        tokens = _larger(tokens, end + min(room, len(states)))
    if num_links + room > len(links):
        links = _larger(links, num_links + room)
    num_tokens = end
    for t in range(begin, end):
        cost = tokens[t].cost
        if cost > cutoff:
            continue
        state = states[tokens[t].state]
        first = tokens[t].first
        for a in range(state.emit, state.end):
            arc = arcs[a]
            ac_cost = offset + acoustic[arc.pdf]
            total = cost + ac_cost + arc.weight
            if total >= limit:
                continue
            limit = min(limit, total + beam)
            new = where[arc.nextstate]
            if end <= new < num_tokens and tokens[new].state == arc.nextstate:
                if total < tokens[new].cost:
                    tokens[new].cost = total
            else:
                new = np.int32(num_tokens)
                where[arc.nextstate] = new
                _set_token(tokens, new, total, arc.nextstate)
                num_tokens += 1
            _set_link(links, num_links, new, a, ac_cost, first)
            first = num_links
            num_links += 1
        tokens[t].first = first
    return tokens, links, num_tokens, num_links, limit


@kernel
def _set_token(tokens: np.ndarray, t: int, cost: np.float32, state: int) -> None:
    token = tokens[t]
    token.cost = cost
    token.extra = 0
    token.state = state
    token.first = NO_LINK


@kernel
def _set_link(links: np.ndarray, n: int, target: int, arc: int, acoustic: np.float32, after: int) -> None:
    link = links[n]
    link.target = target
    link.arc = arc
    link.acoustic = acoustic
    link.next = after


@kernel
def follow_epsilons(states: np.ndarray, arcs: np.ndarray, tokens: np.ndarray, links: np.ndarray, where: np.ndarray, begin: int,
             num_tokens: int, num_links: int, cutoff: np.float32) -> tuple[np.ndarray, np.ndarray, int, int]:
    """Follow arcs without input from the tokens from `begin` on; returns (tokens, links, number of tokens, of links)."""
    queue = np.empty(num_tokens - begin + 64, np.int32)
    waiting = 0
    for t in range(begin, num_tokens):
        if states[tokens[t].state].emit > states[tokens[t].state].begin:
            queue[waiting] = t
            waiting += 1
    while waiting > 0:
        waiting -= 1
        t = queue[waiting]
        cost = tokens[t].cost
        if cost >= cutoff:
            continue
        link = tokens[t].first  # from an earlier visit, when the token's cost was higher
        while link != NO_LINK:
            links[link].target = -1
            link = links[link].next
        state = states[tokens[t].state]
        room = state.emit - state.begin
        if num_tokens + room > len(tokens):
            tokens = _larger(tokens, num_tokens + room)
        if num_links + room > len(links):
            links = _larger(links, num_links + room)
        if waiting + room > len(queue):
            queue = _larger(queue, waiting + room)
        first = NO_LINK
        for a in range(state.begin, state.emit):
            arc = arcs[a]
            total = cost + arc.weight
            if total >= cutoff:
                continue
            new = where[arc.nextstate]
            changed = True
            if begin <= new < num_tokens and tokens[new].state == arc.nextstate:
                changed = total < tokens[new].cost
                if changed:
                    tokens[new].cost = total
            else:
                new = np.int32(num_tokens)
                where[arc.nextstate] = new
                _set_token(tokens, new, total, arc.nextstate)
                num_tokens += 1
            _set_link(links, num_links, new, a, np.float32(0), first)
            first = np.int32(num_links)
            num_links += 1
            if changed and states[arc.nextstate].emit > states[arc.nextstate].begin:
                queue[waiting] = new
                waiting += 1
        tokens[t].first = first
    return tokens, links, num_tokens, num_links


@kernel
def _prune_token(arcs: np.ndarray, tokens: np.ndarray, links: np.ndarray, t: int, own: np.float32,
                 lattice_beam: np.float32) -> np.float32:
    """Remove token t's links that are worse than the lattice beam; returns its new extra cost, which is at most `own`."""
    extra, cost = own, tokens[t].cost
    before = NO_LINK
    at = tokens[t].first
    while at != NO_LINK:
        link = links[at]
        after = link.next
        target = tokens[link.target]
        link_extra = target.extra + ((cost + link.acoustic + arcs[link.arc].weight) - target.cost)
        if link_extra > lattice_beam:
            if before == NO_LINK:
                tokens[t].first = after
            else:
                links[before].next = after
            link.target = -1
        else:
            extra = min(extra, max(link_extra, np.float32(0)))
            before = at
        at = after
    return extra


@kernel
def _prune_frame(arcs: np.ndarray, tokens: np.ndarray, links: np.ndarray, begin: int, end: int, lattice_beam: np.float32,
                 delta: np.float32) -> bool:
    """Prune the links of tokens begin:end until extra costs change by no more than delta; returns whether they changed at all."""
    any_changed = False
    changed = True
    while changed:
        changed = False
        for t in range(end - 1, begin - 1, -1):
            extra = _prune_token(arcs, tokens, links, t, INF, lattice_beam)
            changed |= abs(extra - tokens[t].extra) > delta
            tokens[t].extra = extra
        any_changed |= changed
    return any_changed


@kernel
def _prune_last_frame(states: np.ndarray, arcs: np.ndarray, tokens: np.ndarray, links: np.ndarray, begin: int, end: int,
                      lattice_beam: np.float32) -> bool:
    """Prune as `_prune_frame` at the end of the utterance, with final costs; returns whether a final state was reached.

    Where none was, every token counts as final.
    """
    best_final: Any = INF
    best: Any = INF
    for t in range(begin, end):
        best_final = min(best_final, tokens[t].cost + states[tokens[t].state].final)
        best = min(best, tokens[t].cost)
    reached = best_final < INF
    changed = True
    while changed:
        changed = False
        for t in range(end - 1, begin - 1, -1):
            own = tokens[t].cost + states[tokens[t].state].final - best_final if reached else tokens[t].cost - best
            extra = _prune_token(arcs, tokens, links, t, own, lattice_beam)
            if extra > lattice_beam:
                extra = INF
            old = tokens[t].extra
            if extra != old and (abs(extra - old) == INF or abs(extra - old) > np.float32(1e-5) * (abs(extra) + abs(old))):
                changed = True
            tokens[t].extra = extra
    return reached


@kernel
def _compact(tokens: np.ndarray, links: np.ndarray, first_token: np.ndarray, first_link: np.ndarray, low: int, last: int,
             keep_last: bool) -> None:
    """Free the memory of dead tokens and links, from frame `low` to frame `last`, whose tokens all live with `keep_last`.

    `first_token[f]` and `first_link[f]` are where frame f's begin (f = last + 1: where the last one's end).
    """
    base = first_token[low]
    moved = np.empty(first_token[last + 1] - base, np.int32)
    to = base
    for f in range(low, last + 1):
        begin, end = first_token[f], first_token[f + 1]
        first_token[f] = to
        for t in range(begin, end):
            if tokens[t].extra < INF or (keep_last and f == last):
                moved[t - base] = to
                tokens[to] = tokens[t]
                to += 1
    first_token[last + 1] = to
    link_base = first_link[low]
    link_moved = np.empty(first_link[last + 1] - link_base, np.int32)
    link_to = link_base
    for f in range(low, last + 1):
        begin, end = first_link[f], first_link[f + 1]
        first_link[f] = link_to
        for n in range(begin, end):
            if links[n].target >= 0:
                link_moved[n - link_base] = link_to
                links[link_to] = links[n]
                links[link_to].target = moved[links[n].target - base]
                link_to += 1
    first_link[last + 1] = link_to
    for n in range(link_base, link_to):
        if links[n].next != NO_LINK:
            links[n].next = link_moved[links[n].next - link_base]
    for t in range(base, to):
        if tokens[t].first != NO_LINK:
            tokens[t].first = link_moved[tokens[t].first - link_base]


@kernel
def _prune(arcs: np.ndarray, tokens: np.ndarray, links: np.ndarray, first_token: np.ndarray, first_link: np.ndarray,
           stale: np.ndarray, frame: int, lattice_beam: np.float32, delta: np.float32) -> None:
    """Prune the frames before `frame` as far back as extra costs still change; `stale[f]` marks a frame that must be looked at."""
    low = frame
    for f in range(frame - 1, -1, -1):
        if not stale[f]:
            continue
        changed = _prune_frame(arcs, tokens, links, first_token[f], first_token[f + 1], lattice_beam, delta)
        if changed and f > 0:
            stale[f - 1] = True
        stale[f] = False
        low = f
    if low < frame:
        _compact(tokens, links, first_token, first_link, low, frame, True)


@kernel
def begin(states: np.ndarray, arcs: np.ndarray, start: int, beam: np.float32, tokens: np.ndarray, links: np.ndarray,
          where: np.ndarray) -> tuple[np.ndarray, np.ndarray, int, int]:
    """Begin an utterance at the graph's state `start`: (tokens, links, number of tokens, of links); the three are working memory."""
    _set_token(tokens, 0, np.float32(0), start)
    where[start] = 0
    return follow_epsilons(states, arcs, tokens, links, where, 0, 1, 0, beam)


@kernel(nogil=True)
def advance(states: np.ndarray, arcs: np.ndarray, loglikes: np.ndarray, done: int, acwt: np.float32, beams: np.record, tokens: np.ndarray,
            links: np.ndarray, where: np.ndarray, first_token: np.ndarray, first_link: np.ndarray, stale: np.ndarray, num_tokens: int,
            num_links: int) -> tuple[np.ndarray, np.ndarray, int, int]:
    """Search the next frames of an utterance, `loglikes` float32 [frames, pdfs], of which `done` are searched already.

    Frame f's tokens are `first_token[f]:first_token[f + 1]`, its links likewise. These two arrays have room for two more than there are
    frames, `stale` for one more; `stale` is all true at the beginning. Returns (tokens, links, number of tokens, of links); there is no
    token at all where every path fell out of the beam.
    """
    frames = done + len(loglikes)
    acoustic = np.empty(loglikes.shape[1], np.float32)
    for frame in range(done, frames):
        for pdf in range(len(acoustic)):
            acoustic[pdf] = -acwt * loglikes[frame - done, pdf]
        tokens, links, num_tokens, emitted, num_links, cutoff = emit_frame(
            states, arcs, tokens, links, where, first_token, first_link, stale, frame, num_tokens, num_links, acoustic, beams)
        if emitted == num_tokens:
            return tokens, links, 0, 0
        tokens, links, num_tokens, num_links = follow_epsilons(
            states, arcs, tokens, links, where, num_tokens, emitted, num_links, cutoff)
    first_token[frames + 1], first_link[frames + 1] = num_tokens, num_links
    return tokens, links, num_tokens, num_links


@kernel
def emit_frame(states: np.ndarray, arcs: np.ndarray, tokens: np.ndarray, links: np.ndarray, where: np.ndarray, first_token: np.ndarray,
               first_link: np.ndarray, stale: np.ndarray, frame: int, num_tokens: int, num_links: int, acoustic: np.ndarray,
               beams: np.record) -> tuple[np.ndarray, np.ndarray, int, int, int, np.float32]:
    """Prune the frames before where it is time to, and take the tokens of `frame` to the next at cost `acoustic[pdf]`.

    Returns (tokens, links, number of tokens before, and with the new ones, number of links, cut-off for what follows).
    """
    first_token[frame + 1], first_link[frame + 1] = num_tokens, num_links
    if frame % beams.prune_interval == 0 and frame > 0:
        _prune(arcs, tokens, links, first_token, first_link, stale, frame, beams.lattice_beam, beams.lattice_beam * beams.prune_scale)
        num_tokens, num_links = first_token[frame + 1], first_link[frame + 1]
    tokens, links, emitted, num_links, cutoff = _emit(
        states, arcs, tokens, links, where, first_token[frame], num_tokens, num_links, acoustic, beams)
    first_link[frame + 1] = num_links
    return tokens, links, num_tokens, emitted, num_links, cutoff


@kernel
def states_of(tokens: np.ndarray, begin: int, end: int) -> np.ndarray:
    """The graph states of tokens begin:end."""
    states = np.empty(end - begin, np.int32)
    for t in range(begin, end):
        states[t - begin] = tokens[t].state
    return states


@kernel(nogil=True)
def finish(states: np.ndarray, arcs: np.ndarray, lattice_beam: np.float32, tokens: np.ndarray, links: np.ndarray, first_token: np.ndarray,
           first_link: np.ndarray, frames: int) -> bool:
    """Prune to the lattice of an utterance of so many frames; returns whether a final state was reached."""
    reached = _prune_last_frame(states, arcs, tokens, links, first_token[frames], first_token[frames + 1], lattice_beam)
    for f in range(frames - 1, -1, -1):
        _prune_frame(arcs, tokens, links, first_token[f], first_token[f + 1], lattice_beam, np.float32(0))
    _compact(tokens, links, first_token, first_link, 0, frames, False)
    return reached


@kernel(nogil=True)
def best_path(states: np.ndarray, arcs: np.ndarray, tokens: np.ndarray, links: np.ndarray, last: int,
              num_tokens: int) -> tuple[np.ndarray, np.float32]:
    """The graph arcs, in order, of the best path to one of the last frame's tokens, `last:num_tokens`, without final costs.

    And by how much the best path with final costs is worse; inf where there is none. (Links point forwards: each token is given the
    one link by which it has its cost.)
    """
    lowest = np.full(num_tokens, INF)
    source = np.zeros(num_tokens, np.int32)
    by = np.zeros(num_tokens, np.int32)
    for t in range(num_tokens):
        n = tokens[t].first
        while n != NO_LINK:
            link = links[n]
            cost = tokens[t].cost + link.acoustic + arcs[link.arc].weight
            if cost < lowest[link.target]:
                lowest[link.target], source[link.target], by[link.target] = cost, t, link.arc
            n = link.next
    best, best_final = last, INF
    for t in range(last, num_tokens):
        if tokens[t].cost < tokens[best].cost:
            best = t
        best_final = min(best_final, tokens[t].cost + states[tokens[t].state].final)
    path = np.empty(num_tokens, np.int32)
    at = num_tokens
    t = best
    while t != 0 and at > 0:  # the first token is that of the start state
        at -= 1
        path[at] = by[t]
        t = source[t]
    return path[at:], best_final - tokens[best].cost


@kernel(nogil=True)
def topological_order(tokens: np.ndarray, links: np.ndarray, first_token: np.ndarray) -> np.ndarray:
    """The tokens in topological order, frame by frame; shorter than the tokens where arcs without input form a cycle."""
    num_tokens = first_token[-1]
    order = np.empty(num_tokens, np.int32)
    incoming = np.zeros(num_tokens, np.int32)
    done = 0
    for f in range(len(first_token) - 1):
        begin, end = first_token[f], first_token[f + 1]
        for t in range(begin, end):
            n = tokens[t].first
            while n != NO_LINK:
                if links[n].target < end:
                    incoming[links[n].target] += 1
                n = links[n].next
        at = done
        for t in range(begin, end):
            if incoming[t] == 0:
                order[done] = t
                done += 1
        while at < done:
            n = tokens[order[at]].first
            at += 1
            while n != NO_LINK:
                to = links[n].target
                if to < end:
                    incoming[to] -= 1
                    if incoming[to] == 0:
                        order[done] = to
                        done += 1
                n = links[n].next
        if done < end:
            break
    return order[:done]


@kernel(nogil=True)
def ordered_links(tokens: np.ndarray, links: np.ndarray, order: np.ndarray, num_links: int) -> tuple[
        np.ndarray, np.ndarray, np.ndarray]:
    """The links of tokens renumbered by `order`: (offset of each token's links, target of each link, its graph arc)."""
    rank = np.empty(len(order), np.int32)
    for i in range(len(order)):
        rank[order[i]] = i
    offset = np.zeros(len(order) + 1, np.int64)
    target = np.empty(num_links, np.int32)
    arc = np.empty(num_links, np.int32)
    count = 0
    for i in range(len(order)):
        n = tokens[order[i]].first
        while n != NO_LINK:
            target[count] = rank[links[n].target]
            arc[count] = links[n].arc
            count += 1
            n = links[n].next
        offset[i + 1] = count
    return offset, target, arc
