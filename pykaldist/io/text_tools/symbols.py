"""Tools that write symbols as numbers, numbers as symbols, and fields as what a map says."""

from __future__ import annotations

from pykaldist.errors import UserError
from pykaldist.io.text_tools.tool import field_range, lines_of, rows_of, shown, text, tool, warn, whole

TYPE_CHECKING = False  # the name that type checkers know; typing's own takes long to import
if TYPE_CHECKING:
    from collections.abc import Iterator

    from pykaldist.io.text_tools.tool import Output

_MOST_WARNINGS = 20


@tool("""sym2int.pl [--map-oov <symbol>] [-f <fields>] <symbol-table> [<text>] > <numbers>
 e.g.: utils/sym2int.pl --map-oov '<UNK>' -f 2- data/lang/words.txt data/train/text > text.int
Writes the symbols of each line, or those of the fields 3, 2-4, 2- or -3, as numbers. An unknown one is an error, or becomes the symbol (or
number) of --map-oov.""", "map-oov= f=")
def sym2int_pl(options: dict[str, str], table: str, path: str = "-") -> Output:
    """Write symbols as numbers."""
    fields_of = field_range(options)
    numbers = {}
    for (symbol, number), _, line in rows_of(table, 2, 2, "symbol number"):
        if not number.isdigit():
            raise UserError(f"{table}, line {line}: expected a number behind {text(symbol)}, found {text(number)!r}.")
        numbers[symbol] = b"%d" % int(number)
    oov = options.get("map-oov", "").encode()
    if "map-oov" in options:
        if oov in (b"", b"-f") or oov.endswith(b"words.txt"):
            raise UserError("option --map-oov needs a value.")
        if not oov.isdigit() and oov not in numbers:
            raise UserError(f"--map-oov {text(oov)}: this symbol is not in {table}.")
        oov = oov if oov.isdigit() else numbers[oov]
    return _numbered(path, table, numbers, fields_of, oov)


def _numbered(path: str, table: str, numbers: dict[bytes, bytes], fields_of: slice, oov: bytes) -> Iterator[bytes]:
    replaced = 0
    for line_number, line in enumerate(lines_of(path), 1):
        fields = line.split()
        try:
            fields[fields_of] = [numbers[symbol] for symbol in fields[fields_of]]
        except KeyError:
            for i in range(*fields_of.indices(len(fields))):
                if fields[i] in numbers:
                    fields[i] = numbers[fields[i]]
                    continue
                if not oov:
                    raise UserError(f"{shown(path)}, line {line_number}, field {i + 1}: {text(fields[i])} is not in {table}; give "
                                    "--map-oov, or correct it.") from None
                replaced += 1
                if replaced <= _MOST_WARNINGS:
                    warn(f"replacing {text(fields[i])} with {text(oov)}" + "; no more of these are shown" * (replaced == _MOST_WARNINGS))
                fields[i] = oov
        yield b" ".join(fields) + b"\n"
    if replaced:
        warn(f"WARNING: replaced {replaced} words that are not in {table} with {text(oov)}.")


@tool("""int2sym.pl [-f <fields>] <symbol-table> [<numbers>] > <text>
 e.g.: utils/int2sym.pl -f 2- exp/mono/graph/words.txt exp/mono/decode/best.int
Writes the numbers of each line, or those of the fields 3, 2-4, 2- or -3, as symbols.""", "f=")
def int2sym_pl(options: dict[str, str], table: str, path: str = "-") -> Output:
    """Write numbers as symbols."""
    fields_of = field_range(options)
    symbols = {number: symbol for (symbol, number), _, _ in rows_of(table, 2, 2, "symbol number")}
    return _named(path, table, symbols, fields_of)


def _named(path: str, table: str, symbols: dict[bytes, bytes], fields_of: slice) -> Iterator[bytes]:
    for line_number, line in enumerate(lines_of(path), 1):
        fields = line.split()
        try:
            fields[fields_of] = [symbols[number] for number in fields[fields_of]]
        except KeyError as error:
            number = text(error.args[0])
            why = f"{number} is not in {table}" if number.isdigit() else f"expected a number, found {number!r}"
            at = fields.index(error.args[0], fields_of.start) + 1
            raise UserError(f"{shown(path)}, line {line_number}, field {at}: {why}.") from None
        yield b"".join(field + b" " for field in fields) + b"\n"  # Kaldi has a space behind the last one too


@tool("""apply_map.pl [-f <fields>] [--permissive] <map> < <in> > <out>
 e.g.: echo A B | utils/apply_map.pl map, where map has the lines `A a1 a2` and `B b`, prints a1 a2 b
Writes each field, or the fields 3, 2-4, 2- or -3, as the fields behind it in the map. One that the map lacks is an error, or with
--permissive stays as it is.""", "f= permissive", (1, 1))
def apply_map_pl(options: dict[str, str], map_file: str) -> Output:
    """Write fields as a map says."""
    fields_of = field_range(options)
    to = {fields[0]: b" ".join(fields[1:]) for fields, _, _ in rows_of(map_file, 1, -1, "field ...")}
    return _mapped(map_file, to, fields_of, "permissive" in options)


def _mapped(map_file: str, to: dict[bytes, bytes], fields_of: slice, permissive: bool) -> Iterator[bytes]:
    kept = 0
    for line_number, line in enumerate(lines_of(), 1):
        fields = line.split()
        for field in fields[fields_of]:
            if field not in to:
                if not permissive:
                    raise UserError(f"standard input, line {line_number}: {text(field)} is not in {map_file}; --permissive leaves it.")
                kept += 1
        fields[fields_of] = [to.get(field, field) for field in fields[fields_of]]
        yield b" ".join(fields) + b"\n"
    if kept:
        warn(f"WARNING: {kept} fields are not in {map_file}; they stay as they were.")


@tool("""add_disambig.pl [--include-zero] <symbol-table> <number> > <new-symbol-table>
 e.g.: utils/add_disambig.pl --include-zero phones.txt 3
Adds the symbols #1, #2, ... (with --include-zero #0 too) behind the last one of the table.""", "include-zero", (2, 2))
def add_disambig_pl(options: dict[str, str], table: str, number: str) -> Output:
    """Add disambiguation symbols to a symbol table."""
    rows = list(rows_of(table, 2, 2, "symbol number"))
    if not rows:
        raise UserError(f"{table} is empty; it has no last symbol.")
    first = 0 if "include-zero" in options else 1
    last = whole(text(rows[-1][0][1]), f"the last symbol of {table}", 0)
    added = range(first, whole(number, "the number of symbols", 0) + 1)
    return [line for _, line, _ in rows] + [b"#%d  %d\n" % (n, last + 1 + n - first) for n in added]


_INITIALS = (b"CH", b"SH", b"ZH", *(bytes([letter]) for letter in b"BCDFGHJKLMNPQRSTWXYZ"))


@tool("""pinyin_map.pl <map> < <lexicon> > <new-lexicon>
 e.g.: utils/pinyin_map.pl conf/pinyin2cmu < lexicon.txt > lexicon-cmu.txt
Replaces pinyin syllables such as ZHONG1 behind each line's first word by phones. Lines of <map> are an initial or a final, and its phones;
those of the final get the syllable's tone behind them.""", "", (1, 1))
def pinyin_map_pl(options: dict[str, str], table: str) -> Iterator[bytes]:
    """Replace pinyin syllables by phones."""
    phones = {fields[0]: fields[1:] for fields, _, _ in rows_of(table, 2, -1, "syllable phone ...")}

    def of_syllable(syllable: bytes, where: str) -> list[bytes]:
        initial = next((start for start in _INITIALS if syllable.startswith(start) and len(syllable) > len(start)), b"")
        rest = syllable[len(initial):]
        final = rest.rstrip(b"0123456789")
        missing = next((part for part in ([initial] if initial else []) + [final] if part not in phones), None)
        if missing is not None:
            raise UserError(f"{where}: {table} has no line for {text(missing)!r} of the syllable {text(syllable)}.")
        return [*phones.get(initial, []), *(phone + rest[len(final):] for phone in phones[final])]

    for fields, _, line in rows_of("-", 1, -1, "word syllable ..."):
        found = [phone for syllable in fields[1:] for phone in of_syllable(syllable, f"standard input, line {line}")]
        yield b" ".join([fields[0], *found]) + b"\n"


@tool("""validate_text.pl <text>
 e.g.: utils/validate_text.pl data/train/text
Checks that a transcript file is not empty, that every line has its end, and, where it is UTF-8, that there are no blanks but spaces and
tabs.""", "", (1, 1))
def validate_text_pl(options: dict[str, str], path: str) -> Output:
    """Check a transcript file."""
    lines = list(lines_of(path))
    if not lines:
        raise UserError(f"{path} is empty.")
    try:
        decoded = [line.decode("utf-8") for line in lines]
    except UnicodeDecodeError:
        decoded = []  # of an encoding whose blanks are not known
    for number, line in enumerate(decoded, 1):
        strange = next((c for c in line if c.isspace() and c not in " \t\n"), None)
        if strange is not None:
            raise UserError(f"{path}, line {number} ({(line.split() or ['?'])[0]}): found the blank U+{ord(strange):04X}; only spaces and "
                            "tabs may stand there.")
    if not lines[-1].endswith(b"\n"):
        raise UserError(f"{path}, line {len(lines)}: the line has no end; add one.")
    return None


@tool("""lang/check_phones_compatible.sh <phones.txt> <other-phones.txt>
 e.g.: utils/lang/check_phones_compatible.sh data/lang/phones.txt exp/tri3/phones.txt
Exit status 0 where the phones of both tables have the same numbers, disambiguation symbols aside; or where one of the files is not there,
as in a model directory of an old recipe.""", "", (2, 2))
def check_phones_compatible_sh(options: dict[str, str], first: str, second: str) -> Output:
    """Check that two symbol tables of phones agree."""
    tables = []
    for path in (first, second):
        try:
            tables.append([fields for fields, _, _ in rows_of(path, 2, 2, "phone number") if not fields[0].startswith(b"#")])
        except FileNotFoundError:
            continue
    if not tables:
        raise UserError(f"neither {first} nor {second} exists; check the paths.")
    if len(tables) == 2 and tables[0] != tables[1]:
        raise UserError(f"the phones of {first} and {second} have not the same numbers; use the language directory that the model is of.")
    return None
