"""XML that defines entities or refers to other files is refused by every reader of XML; nothing of it is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from offload import cli
from offload.errors import ReadingError
from offload.readers.tools.recognise import decoded, read_content
from tests.pace import within
from tests.xml_outputs import output

ROOTS = {"topology": "hwloc_two_gpus_v2.xml", "system": "nccl_dump.xml"}
LAUGHS = '<!ENTITY a0 "ha">' + "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 12))
HEADS = {  # what stands before the root; {0} is the root's name, {1} a file's path
    "entity": '<!DOCTYPE {0} [<!ENTITY x "y">]>',
    "expanding entities": "<!DOCTYPE {0} [" + LAUGHS + "]>",
    "external entity": '<!DOCTYPE {0} [<!ENTITY x SYSTEM "file://{1}">]>',
    "public external entity": '<!DOCTYPE {0} [<!ENTITY x PUBLIC "p" "http://example.org/x">]>',
    "parameter entity": '<!DOCTYPE {0} [<!ENTITY % x SYSTEM "file://{1}"> %x;]>',
    "external definition": '<!DOCTYPE {0} SYSTEM "file://{1}">',
    "definition over the network": '<!DOCTYPE {0} SYSTEM "http://example.org/hwloc2.dtd">',
    "public definition": '<!DOCTYPE {0} PUBLIC "-//x//y" "hwloc2.dtd">',
    "definition beside it": '<!DOCTYPE {0} SYSTEM "../hwloc2.dtd">',
    "notation": '<!DOCTYPE {0} [<!NOTATION n SYSTEM "file://{1}">]>',
    "over several lines": '<!DOCTYPE\n  {0}\n  [\n  <!ENTITY\n x "y">\n]>',
    "small letters": '<!doctype {0} [<!entity x "y">]>',
}


def place_of(root: str, content: str) -> int:
    """Where the root begins, behind the comments of the fixture."""
    return content.rindex(f"<{root} version")


def with_head(root: str, head: str, path: str = "/etc/passwd") -> str:
    content = output(ROOTS[root])
    body = content[place_of(root, content) :]
    return head.replace("{0}", root).replace("{1}", path) + "\n" + body


@pytest.mark.parametrize("root", ROOTS)
@pytest.mark.parametrize("head", HEADS)
def test_definitions_and_references_are_refused(root, head):
    with within(1), pytest.raises(ReadingError, match=r"line \d+: .* is refused"):
        read_content(with_head(root, HEADS[head]))


@pytest.mark.parametrize("root", ROOTS)
@pytest.mark.parametrize("used", ["&x;", "&x", "&#0;", "&#xFFFFFFFF;"])
def test_an_entity_that_nothing_defines_is_refused(root, used):
    content = output(ROOTS[root])
    at = content.index('="', place_of(root, content)) + 2
    with pytest.raises(ReadingError):
        read_content(content[:at] + used + content[at:])


@pytest.mark.parametrize("root", ROOTS)
@pytest.mark.parametrize("element", [
    '<xi:include xmlns:xi="http://www.w3.org/2001/XInclude" href="file:///etc/passwd" parse="text"/>',
    '<x:include href="file:///etc/passwd"/>',
])  # fmt: skip
def test_an_include_is_refused(root, element):
    with pytest.raises(ReadingError, match=r"line \d+: .* is refused"):
        read_content(output(ROOTS[root]).replace(f"</{root}>", f"{element}</{root}>"))


@pytest.mark.parametrize("root", ROOTS)
def test_nothing_of_the_file_that_is_referred_to_is_told(root, tmp_path, capsys):
    secret, given = tmp_path / "secret.txt", tmp_path / "given.xml"
    secret.write_text("zqsecret")
    for head in HEADS.values():
        content = with_head(root, head, str(secret)).replace('="', '="&x;', 1)
        given.write_text(content)
        assert cli.main(["topology", "import", str(given)]) == 2
        told = capsys.readouterr()
        assert "zqsecret" not in told.out + told.err and "Traceback" not in told.err


@pytest.mark.parametrize("root", ROOTS)
@pytest.mark.parametrize("coding", ["utf-16", "utf-16-be", "utf-16-le", "utf-7", "cp037"])
def test_another_coding_hides_nothing(root, coding):
    """UTF-16 is read as text, with its mark or without; in a coding without the signs of XML there is none."""
    raw = with_head(root, HEADS["external entity"]).encode(coding)
    with pytest.raises(ReadingError, match="is refused" if coding != "cp037" else "no text"):
        read_content(decoded(raw))


@pytest.mark.parametrize("root", ROOTS)
def test_references_to_signs_are_no_entities(root):
    content = output(ROOTS[root])
    assert read_content(content.replace("Example", "&#69;xample").replace("0x", "&#48;x", 1))[0].machine == (
        read_content(content)[0].machine)  # fmt: skip


@pytest.mark.parametrize("root", ROOTS)
def test_a_definition_in_a_comment_is_none(root):
    content = output(ROOTS[root])
    at = place_of(root, content)
    found = read_content(content[:at] + '<!-- <!DOCTYPE x [<!ENTITY x "y">]> -->' + content[at:])
    assert found[0].machine == read_content(content)[0].machine


def test_the_samples_of_the_folder_have_no_definitions_of_their_own():
    """hwloc's own line is all that is passed over."""
    heads = [line for path in (Path(__file__).parent / "data" / "outputs").glob("*.xml")
             for line in path.read_text().splitlines() if "<!DOCTYPE" in line]  # fmt: skip
    assert set(heads) == {'<!DOCTYPE topology SYSTEM "hwloc2.dtd">'}
