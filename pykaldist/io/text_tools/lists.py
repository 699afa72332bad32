"""Tools for tables and lists: lines are chosen, divided, shuffled and turned round by their keys."""

from __future__ import annotations

from pykaldist.errors import UserError
from pykaldist.io.text_tools.tool import lines_of, number, rows_of, shown, text, tool, warn, whole, write_file

TYPE_CHECKING = False  # the name that type checkers know; typing's own takes long to import
if TYPE_CHECKING:
    from collections.abc import Iterator

    from pykaldist.io.text_tools.tool import Output


def _keys(path: str) -> set[bytes]:
    """The first fields of a file's lines."""
    return {fields[0] for fields, _, _ in rows_of(path, 1, -1, "key ...")}


@tool("""filter_scp.pl [--exclude] [-f <field>] <id-list> [<in.scp>] > <out.scp>
 e.g.: utils/filter_scp.pl data/dev/utt2spk data/all/feats.scp > data/dev/feats.scp
Prints the lines whose first field (that of -f, from 1) is the first field of a line of <id-list>; with --exclude, the others.""",
      "exclude f=")
def filter_scp_pl(options: dict[str, str], id_list: str, scp: str = "-") -> Output:
    """Choose lines by their keys."""
    field, inside = whole(options.get("f", "1"), "-f", 1), "exclude" not in options
    wanted = _keys(id_list)
    return _filtered(scp, field, wanted, inside)


def _filtered(scp: str, field: int, wanted: set[bytes], inside: bool) -> Iterator[bytes]:
    line_number = 0
    try:
        for line in lines_of(scp):
            line_number += 1
            if (line.split(None, field)[field - 1] in wanted) == inside:
                yield line
    except IndexError as error:
        raise UserError(f"{shown(scp)}, line {line_number}: expected {field} fields or more, found {text(line)!r}.") from error


@tool("""filter_scps.pl [-f <field>] [--no-warn] JOB=<first>:<last> <id-list with JOB> <in.scp> <out.scp with JOB>
 e.g.: utils/filter_scps.pl JOB=1:4 data/train/split4/JOB/spk2utt data/train/feats.scp data/train/split4/JOB/feats.scp
Divides a table in one pass by several lists, as filter_scp.pl would with each.""", "f= no-warn", (4, 4))
def filter_scps_pl(options: dict[str, str], jobs: str, id_lists: str, scp: str, outputs: str) -> Output:
    """Divide lines by lists of keys."""
    name, equals, numbers = jobs.partition("=")
    first, colon, last = numbers.partition(":")
    if not (name and equals and colon and first.isdigit() and last.isdigit() and int(first) <= int(last)):
        raise UserError(f"expected JOB=<first>:<last> from low to high, found {jobs}.")
    for pattern in (id_lists, outputs):
        if name not in pattern and first != last:
            raise UserError(f"{pattern} does not have {name} in it, so that all jobs would share one file.")
    field = whole(options.get("f", "1"), "-f", 1)
    parts: dict[int, list[bytes]] = {job: [] for job in range(int(first), int(last) + 1)}
    jobs_of: dict[bytes, list[int]] = {}
    for job in parts:
        for key in _keys(id_lists.replace(name, str(job))):
            jobs_of.setdefault(key, []).append(job)
    nowhere = several = 0
    for fields, line, _ in rows_of(scp, field, -1, f"{field} fields or more"):
        found = jobs_of.get(fields[field - 1], ())
        nowhere += not found
        several += len(found) > 1
        for job in found:
            parts[job].append(line)
    for job, lines in parts.items():
        write_file(outputs.replace(name, str(job)), lines)
    if "no-warn" not in options and (nowhere or several):
        warn(f"WARNING: of the lines of {scp} {nowhere} went to no output, {several} to more than one.")
    return None


@tool("""utt2spk_to_spk2utt.pl [<utt2spk>] > <spk2utt>
 e.g.: utils/utt2spk_to_spk2utt.pl data/train/utt2spk > data/train/spk2utt
Speakers and their utterances stand in the order of the input.""", arguments=(0, 1))
def utt2spk_to_spk2utt_pl(options: dict[str, str], utt2spk: str = "-") -> Output:
    """Turn utterances' speakers into speakers' utterances."""
    speakers: dict[bytes, list[bytes]] = {}
    for (utt, speaker), _, _ in rows_of(utt2spk, 2, 2, "utterance speaker"):
        speakers.setdefault(speaker, []).append(utt)
    return (b" ".join((speaker, *utts)) + b"\n" for speaker, utts in speakers.items())


@tool("""spk2utt_to_utt2spk.pl [<spk2utt>] > <utt2spk>
 e.g.: utils/spk2utt_to_utt2spk.pl data/train/spk2utt > data/train/utt2spk""", arguments=(0, 1))
def spk2utt_to_utt2spk_pl(options: dict[str, str], spk2utt: str = "-") -> Output:
    """Turn speakers' utterances into utterances' speakers."""
    return (utt + b" " + fields[0] + b"\n" for fields, _, _ in rows_of(spk2utt, 2, -1, "speaker utterance ...") for utt in fields[1:])


@tool("""split_scp.pl [--utt2spk=<utt2spk>] <in.scp> <out1.scp> <out2.scp> ...
   or: utils/split_scp.pl -j <num-jobs> <job> [--one-based] [--utt2spk=<utt2spk>] <in.scp> [<out.scp>]
 e.g.: utils/split_scp.pl --utt2spk=data/train/utt2spk data/train/feats.scp feats.1.scp feats.2.scp
Divides a table into parts that follow each other and are as equal as possible; with --utt2spk no speaker is divided. With -j only one
of the parts is written, the <job>-th from 0, or from 1 with --one-based. Too few lines or speakers are an error.""",
      "j=2 one-based utt2spk=", (1, -1))
def split_scp_pl(options: dict[str, str], scp: str, *outputs: str) -> Output:
    """Divide a table into parts."""
    if "j" in options:
        jobs, job = options["j"].split()
        base = int("one-based" in options)
        count, chosen = whole(jobs, "the number of jobs", 1), whole(job, "the job", base) - base
        if chosen >= count:
            raise UserError(f"-j {options['j']}: expected a job from {base} to {count - 1 + base}.")
        if len(outputs) > 1:
            raise UserError("with -j one file at most is written; name no others.")
        written = {chosen: outputs[0] if outputs else "-"}
    else:
        if not outputs:
            raise UserError("name the files to write behind the input; --help shows the usage.")
        count, written = len(outputs), dict(enumerate(outputs))
    lines = list(lines_of(scp))
    groups = _by_speaker(lines, scp, options["utt2spk"]) if "utt2spk" in options else [[line] for line in lines]
    if len(groups) < count:
        what = "speakers" if "utt2spk" in options else "lines"
        raise UserError(f"{shown(scp)} has {len(groups)} {what}, which is too few for {count} parts; use fewer (--nj).")
    ends = equal_parts([len(group) for group in groups], count)
    for index, path in written.items():
        write_file(path, (line for group in groups[ends[index]:ends[index + 1]] for line in group))
    return None


def _by_speaker(lines: list[bytes], scp: str, utt2spk: str) -> list[list[bytes]]:
    """The lines speaker by speaker, in the order in which the speakers come."""
    speaker_of = {utt: speaker for (utt, speaker), _, _ in rows_of(utt2spk, 2, 2, "utterance speaker")}
    speakers: dict[bytes, list[bytes]] = {}
    for line_number, line in enumerate(lines, 1):
        key = (line.split(None, 1) or [b""])[0]
        if key not in speaker_of:
            raise UserError(f"{shown(scp)}, line {line_number}: {text(key)!r} is no utterance of {utt2spk}.")
        speakers.setdefault(speaker_of[key], []).append(line)
    return list(speakers.values())


def equal_parts(sizes: list[int], count: int) -> list[int]:
    """Where `count` parts of a list begin and end (count + 1 numbers) so that the sums of sizes are nearly equal, and no part is empty.

    Each end is the one nearest to its share of the sum, the later one of two; of equal sizes the first parts have one more where they
    cannot be equal. There have to be `count` sizes or more.
    """
    ends, total, reached = [0], sum(sizes), 0
    if len(set(sizes)) == 1:
        return [part * (len(sizes) // count) + min(part, len(sizes) % count) for part in range(count + 1)]
    for part in range(1, count):
        goal, end = total * part / count, ends[-1]
        while end < len(sizes) - (count - part) and (end == ends[-1] or abs(reached + sizes[end] - goal) <= abs(reached - goal)):
            reached += sizes[end]
            end += 1
        ends.append(end)
    return [*ends, len(sizes)]


@tool("""subset_scp.pl [--quiet] [--first|--last] <number> <in.scp> > <out.scp>
 e.g.: utils/subset_scp.pl 1000 data/train/feats.scp > some_feats.scp
Prints so many lines, taken evenly from the whole; with --first or --last the first or last ones. More than there are is an error, or with
--quiet all.""", "quiet first last", (2, 2))
def subset_scp_pl(options: dict[str, str], count: str, scp: str) -> Output:
    """Take so many lines."""
    lines, wanted = list(lines_of(scp)), whole(count, "the number of lines", 1)
    if wanted > len(lines) and "quiet" not in options:
        raise UserError(f"{shown(scp)} has {len(lines)} lines, {wanted} were asked for; --quiet takes what there is.")
    wanted = min(wanted, len(lines))
    if "first" in options:
        return lines[:wanted]
    if "last" in options:
        return lines[len(lines) - wanted:]
    return [lines[i * len(lines) // wanted] for i in range(wanted)]


@tool("""shuffle_list.pl [--srand <seed>] [<list>] > <shuffled list>
 e.g.: utils/shuffle_list.pl --srand 777 data/train/utt2spk | head -n 100 > some
The same seed (0 where it is not given) gives the same order.""", "srand=", (0, 1))
def shuffle_list_pl(options: dict[str, str], path: str = "-") -> Output:
    """Put lines in a random order."""
    from random import Random

    lines = [line if line.endswith(b"\n") else line + b"\n" for line in lines_of(path)]
    Random(whole(options.get("srand", "0"), "--srand", 0)).shuffle(lines)
    return lines


@tool("""convert_ctm.pl [--skip-unknown] <segments> <reco2file_and_channel> [<utterance-ctm>] > <ctm>
 e.g.: utils/convert_ctm.pl data/test/segments data/test/reco2file_and_channel utt.ctm > ctm
Turns word times from the utterance's beginning into times from the recording's, with its file and channel. Utterances that segments lacks
are an error, or with --skip-unknown left out.""", "skip-unknown", (2, 3))
def convert_ctm_pl(options: dict[str, str], segments: str, reco2file: str, ctm: str = "-") -> Output:
    """Turn a CTM of utterances into one of recordings."""
    place = {}
    for (utt, reco, begin, end), _, line_number in rows_of(segments, 4, 4, "utterance recording begin end"):
        place[utt] = (reco, _seconds(begin, segments, line_number), _seconds(end, segments, line_number))
    channel_of = {row[0]: row[1:] for row, _, _ in rows_of(reco2file, 3, 3, "recording file channel")}
    found = []
    for fields, _, line_number in rows_of(ctm, 5, 6, "utterance channel begin duration word [confidence]"):
        where = f"{shown(ctm)}, line {line_number}"
        if fields[0] not in place:
            if "skip-unknown" in options:
                continue
            raise UserError(f"{where}: utterance {text(fields[0])} is not in {segments}.")
        reco, offset, last = place[fields[0]]
        if reco not in channel_of:
            raise UserError(f"{where}: recording {text(reco)} is not in {reco2file}.")
        start, length = _seconds(fields[2], ctm, line_number) + offset, _seconds(fields[3], ctm, line_number)
        if round(start, 2) + round(length, 2) > last + 0.01:
            warn(f"WARNING: {where}: the word ends behind the segment's end, {last:g} s.")
        found.append(b" ".join((*channel_of[reco], b"%.2f" % start, b"%.2f" % length, *fields[4:])) + b"\n")
    if not found:
        raise UserError(f"{shown(ctm)} has no word of an utterance of {segments}.")
    return found


def _seconds(field: bytes, path: str, line: int) -> float:
    try:
        return float(field)
    except ValueError as error:
        raise UserError(f"{shown(path)}, line {line}: expected seconds, found {text(field)!r}.") from error


@tool("""data/extend_segment_times.py [options] < <segments> > <segments>
 e.g.: utils/data/extend_segment_times.py --start-padding=0.15 --end-padding=0.1 < segments > new_segments
Makes segments longer: --start-padding <s> (0.1), --end-padding <s> (0.1), the last of a recording by --last-segment-end-padding <s> (0.1)
at most. Where they overlap then, they end and begin in the middle; --fix-overlapping-segments false leaves them.""",
      "start-padding= end-padding= last-segment-end-padding= fix-overlapping-segments=", (0, 0))
def extend_segment_times_py(options: dict[str, str]) -> Output:
    """Make segments longer."""
    start, end, last = (number(options.get(f"{name}-padding", "0.1"), f"--{name}-padding") for name in ("start", "end", "last-segment-end"))
    if (fix := options.get("fix-overlapping-segments", "true")) not in ("true", "false"):
        raise UserError(f"option --fix-overlapping-segments takes true or false, found {fix!r}.")
    utts: list[tuple[bytes, bytes]] = []
    times: list[list[float]] = []
    of_recording: dict[bytes, list[int]] = {}
    for (utt, recording, begun, ended), _, line in rows_of("-", 4, 4, "utterance recording begin end"):
        of_recording.setdefault(recording, []).append(len(utts))
        utts.append((utt, recording))
        times.append([_seconds(begun, "-", line), _seconds(ended, "-", line)])
    for rows in of_recording.values():
        rows.sort(key=lambda row: sum(times[row]))
        limit = max(times[row][1] for row in rows) + last
        for row in rows:
            times[row] = [max(0.0, times[row][0] - start), min(limit, times[row][1] + end)]
        for i in range(1, len(rows)):
            before, after = rows[i - 1], rows[i]
            if fix == "true" and times[before][1] > times[after][0]:
                times[before][1] = times[after][0] = (times[before][1] + times[after][0]) / 2
    return (b"%s %s %.2f %.2f\n" % (utt, recording, first, stop)
            for (utt, recording), (first, stop) in zip(utts, times, strict=True))
