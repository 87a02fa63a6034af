#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes man pages of section 3 from the comments of the public headers: one for each function, or group of functions
with one comment, and one for each header.

    gen_man.py --version VERSION --date YYYY-MM-DD OUTPUT HEADER...

It relies on this: a comment's declarations follow right below it, without an empty line; a line of the form
"---- title ----" begins a section; " - " begins an item of a list; "Errors:" begins what goes to ERRORS, up to the end
of its paragraph. Not Doxygen, which needs marks in the comments that a reader of the header would have to look past.
"""
import argparse
import re
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

FUNCTION = re.compile(r"^TRZ_(?:CUDA_)?API\s+(?P<type>[\w ]+?[ *]+)(?P<name>trz_\w+)\((?P<parameters>.*)\);$", re.S)
TITLE = re.compile(r"^-{4,} (.+?) -{4,}$", re.M)
EARLY = 100  # columns that a line reaches, with the next one's first word, unless its paragraph ends
EVERYWHERE = {"trz_status", "trz_heap"}  # types that only the header's page shows
TYPE_NAME = re.compile(r"\b(?:trz|TRZ)_\w+\b")
COMMENT = re.compile(r"/\*(.*?)\*/", re.S)


@dataclass
class Block:
    """A piece between empty lines of a header: a comment, and the declarations that it describes."""
    comment: str
    code: str
    section: str
    functions: list = field(default_factory=list)


@dataclass
class Header:
    name: str
    about: str
    statuses: list  # name, value, text
    blocks: list


# ---- reading ---------------------------------------------------------------------------------------------

def text_of(comment):
    """A comment without its stars. A line that ends early ends its paragraph."""
    lines = [re.sub(r"^\s*\* ?", "", line).rstrip() for line in comment.strip().split("\n")]
    text = ""
    for line, following in zip(lines, lines[1:] + [""]):
        first_word = following.split(" ", 1)[0]
        early = line and first_word and not following.startswith(" ") and len(line) + len(first_word) < EARLY
        text += line + ("\n\n" if early else "\n")
    return text.strip()


def statements(code):
    """The declarations of a block, each on one line or over several, as written."""
    depth, found = 0, [""]
    for line in code.split("\n"):
        found[-1] += line + "\n"
        depth += line.count("{") - line.count("}")
        if depth == 0 and re.search(r"[;}]\s*(/\*.*\*/)?\s*$", line):
            found.append("")
    return [one.strip() for one in found if one.strip()]


def blocks_of(body):
    """Pieces between empty lines outside of braces and comments."""
    pieces, depth, inside = [[]], 0, False
    for line in body.split("\n"):
        if not line.strip() and depth == 0 and not inside:
            pieces.append([])
            continue
        pieces[-1].append(line)
        inside = (inside or "/*" in line) and line.rfind("*/") <= line.rfind("/*")
        bare = re.sub(r"/\*.*?(\*/|$)", "", line)
        depth += bare.count("{") - bare.count("}") if not inside else 0
    return ["\n".join(piece) for piece in pieces if piece]


def read(path):
    body = path.read_text()
    body = body[:body.find("#ifdef __cplusplus\n}")]
    body = re.sub(r"#ifdef __cplusplus\nextern .*?\n#endif\n", "", body, flags=re.S)
    about, rest = COMMENT.search(body), body[COMMENT.search(body).end():]
    statuses = re.findall(r'^\tX\((\w+), (\d+), "(.*)"\)', rest, re.M)
    header, section = Header(path.name, text_of(about.group(1).split("\n *\n", 1)[1]), statuses, []), ""
    for piece in blocks_of(rest):
        comment = COMMENT.match(piece)
        code = piece[comment.end():].strip() if comment else piece
        said = text_of(comment.group(1)) if comment else ""
        title = TITLE.match(said)
        if title:
            section, said = title.group(1), said[title.end():].strip()
        block = Block(said, code, section)
        block.functions = [match for match in map(FUNCTION.match, statements(code)) if match]
        header.blocks.append(block)
    return header


# ---- writing ---------------------------------------------------------------------------------------------

def roff(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.M)


def code_lines(code):
    return [".nf", *(roff(line.replace("\t", "    ")) or ".sp" for line in code.split("\n")), ".fi"]


def paragraphs(text):
    """Lists and paragraphs as roff."""
    lines = []
    for paragraph in re.split(r"\n\n+", text):
        first, *items = re.split(r"(?:^|\n) ?- ", paragraph)
        lines += [".PP", *filled(first)] if first.strip() else []
        for item in items:
            lines += [r".IP \(bu 2", *filled(item)]
    return lines[1:] if lines[:1] == [".PP"] else lines


def filled(text):
    return [roff(line) for line in textwrap.wrap(" ".join(text.split()), 76, break_on_hyphens=False)]


def first_sentence(text):
    flat, depth = " ".join(text.split("\n\n")[0].split()), 0
    for i, sign in enumerate(flat + ". "):
        depth += (sign == "(") - (sign == ")")
        if depth == 0 and sign in ".:;" and (flat + ". ")[i + 1] in " ":
            break
    flat = flat[:i].rstrip(".")
    return flat[0].lower() + flat[1:] if re.match(r"[A-Z][a-z]|A ", flat) else flat


def split_errors(comment):
    """Splits a comment: the text without errors, and what it says of errors, with whole names."""
    match = re.search(r"(?:^|(?<=\s))(?:No errors\.|Errors(?:, which change nothing)?: )", comment)
    if not match or match.group().startswith("No"):
        return comment, ""
    end = comment.find("\n\n", match.end())
    end = len(comment) if end < 0 else end
    calls = re.search(r"\s(?=Calls the driver: )", comment[match.end():end])
    if calls:
        end = match.end() + calls.start()
    told = re.sub(r"\b(?<!_)(?!NULL\b|VMM\b|TRZ_)([A-Z]{2,}(?:_[A-Z]+)*)\b", whole_name, comment[match.start():end])
    told = re.sub(r"^Errors: ", "", told)
    told = told[0].upper() + told[1:]
    return (comment[:match.start()] + comment[end:]).strip(), told


def whole_name(match):
    name = match.group(1)
    for full in (f"TRZ_ERROR_{name}", f"TRZ_{name}"):
        if full in STATUSES:
            return full
    return name


STATUSES = set()


def prototype(match):
    """A function of the synopsis: names of parameters in italics, all else bold."""
    parts = []
    for parameter in re.sub(r"\s+", " ", match["parameters"]).split(", "):
        name = re.search(r"(\w+)((?:\[\])?)$", parameter) if parameter not in ("void", "") else None
        if name:
            parts.append(f"\\fB{roff(parameter[:name.start()])}\\fI{name.group(1)}\\fB{name.group(2)}")
        else:
            parts.append(f"\\fB{parameter}")
    return f"\\fB{roff(match['type'])}{match['name']}({', '.join(parts)});\\fR"


def page(names, about, lines, options):
    head = [f".\\\" Made by tools/gen_man.py from {options.source}.",
            f'.TH {names[0].upper()} 3 "{options.date}" "terrazzo {options.version}" "terrazzo"', ".SH NAME",
            *filled(f"{', '.join(names)} - {about}")]
    head[3] = head[3].replace(" \\- ", " @- ", 1).replace(r"\-", "-").replace(" @- ", r" \- ", 1)
    (options.output / f"{names[0]}.3").write_text("\n".join(head + lines) + "\n")
    for other in names[1:]:
        (options.output / f"{other}.3").symlink_to(f"{names[0]}.3")


def declares(block):
    """Names of the types and constants of a block."""
    code = COMMENT.sub("", block.code)
    found = re.findall(r"(?:^|\}) ?(?:typedef [\w *]+?)?\b(trz_\w+)(?:\(.*\))?;", code, re.M | re.S)
    found += re.findall(r"\b(?:struct|enum) (trz_\w+) \{", code)
    return set(found) | (set(re.findall(r"^\s+(TRZ_\w+)(?: = |,|$)", code, re.M)) if "enum" in code else set())


def types_of(header, block):
    """The blocks that declare the types of the functions' parameters, the types in those, and the constants that either
    mentions, by name or as "TRZ_NAME_*"."""
    wanted, found = [block], []
    for one in wanted:
        names = set(TYPE_NAME.findall(COMMENT.sub("", one.code))) - EVERYWHERE
        said = one.comment + one.code
        names |= set(re.findall(r"\bTRZ_\w+\b", one.comment))
        prefixes = tuple(re.findall(r"\b(TRZ_\w+_)\*", said))
        for other in header.blocks:
            known = declares(other) - EVERYWHERE
            if not other.functions and other not in wanted and not EVERYWHERE & declares(other) and (
                    names & known or any(name.startswith(prefixes) for name in known if prefixes)):
                wanted.append(other)
                found.append(other)
    return found


def function_page(header, block, options):
    names = [match["name"] for match in block.functions]
    described, errors = split_errors(block.comment)
    lines = [".SH SYNOPSIS", ".nf", f".B #include <{header.name}>", ".PP",
             *(prototype(match) for match in block.functions), ".fi"]
    lines += [".SH DESCRIPTION", *paragraphs(described)]
    if errors:
        lines += [".SH ERRORS", *paragraphs(errors)]
    types = types_of(header, block)
    for other in types:
        lines += [".PP" if other is not types[0] else ".SH TYPES", *paragraphs(other.comment)]
        lines += [".PP"] if other.comment else []
        lines += code_lines(other.code)
    lines += [".SH SEE ALSO", ",\n".join(f"\\fB{name}\\fR(3)" for name in neighbours(header, block))]
    page(names, first_sentence(block.comment), lines, options)


def neighbours(header, block):
    """The header's page, and the other functions of the section."""
    same = [match["name"] for other in header.blocks if other.section == block.section and other is not block
            for match in other.functions]
    return [Path(header.name).stem, *same]


def header_page(header, options):
    lines = [".SH SYNOPSIS", f".B #include <{header.name}>", ".SH DESCRIPTION", *paragraphs(header.about)]
    section = None
    for block in header.blocks:
        if block.functions and block.section != section:
            section = block.section
            lines.append(f'.SS "{section[:1].upper() + section[1:]}"')
        for match in block.functions[:1]:
            names = ", ".join(f"\\fB{each['name']}\\fR(3)" for each in block.functions)
            lines += [".TP", names, *filled(first_sentence(block.comment))]
    if header.statuses:
        lines += [".SH RETURN VALUES", "Values of trz_status:"]
    for name, value, text in header.statuses:
        lines += [".TP", f"\\fBTRZ_{name}\\fR ({value})", *filled(text)]
    page([Path(header.name).stem], first_sentence(re.sub(r"^terrazzo: ", "", header.about)), lines, options)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--version", required=True)
    parser.add_argument("--date", required=True)
    parser.add_argument("output", type=Path)
    parser.add_argument("headers", type=Path, nargs="+")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    for old in options.output.glob("*.3"):
        old.unlink()
    headers = [read(path) for path in options.headers]
    STATUSES.update("TRZ_" + name for header in headers for name, _, _ in header.statuses)
    for header in headers:
        options.source = header.name
        header_page(header, options)
        for block in header.blocks:
            if block.functions:
                function_page(header, block, options)


if __name__ == "__main__":
    main()
