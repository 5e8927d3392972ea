"""A target that is not there: what the message says to do, before torch is loaded."""

import pytest

from rooftile.capture.hints import refuse_missing
from rooftile.errors import InputError


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a model's file and a package, where the user stands."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(
        "WIDTH = 3\ndef _own(): ...\ndef make(): ...\nclass Net: ...\ndef other(): ...\n"
    )
    (tmp_path / "nets").mkdir()
    (tmp_path / "nets" / "gpt.py").write_text("def make(): ...\n")
    return tmp_path


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (
            "meta-llama/Llama-3.1-8B",
            "hf download meta-llama/Llama-3.1-8B config.json --local-dir Llama-3.1-8B, then "
            "rooftile audit Llama-3.1-8B",
        ),
        ("modle.py:make", "near names: model.py:make"),
        ("nets/gtp.py:make", "near names: nets/gpt.py:make"),
        ("nowhere/gpt.py:make", "no folder 'nowhere'"),
        ("unlike_any.py:make", "does not exist in "),
        ("modle.py", "near names: model.py:callable"),
        ("model.py", "it has model.py:make, model.py:other"),
        ("nets/gpt:make", "write nets/gpt.py:make"),
        ("nothing", "must be file.py:callable"),
        ("make:", "must be file.py:callable"),
    ],
)
def test_the_message_says_what_to_do(target, words, folder):
    """One line, which names the target and what would work."""
    with pytest.raises(InputError) as caught:
        refuse_missing(target)
    message = str(caught.value)
    assert words in message
    assert target.partition(":")[0] in message
    assert "\n" not in message


@pytest.mark.parametrize(
    "target",
    ["model.py:make", "nets/gpt.py:make", "model:make", "package.module:make", "nets",
     "config.json", "program.pt2"],
)  # fmt: skip
def test_what_may_be_there_is_left_to_its_reader(target, folder):
    """A file that is there, a module, a folder; .json and .pt2 have messages of their own."""
    refuse_missing(target)


def test_a_file_without_functions_says_so(folder):
    """Nor does one that is no Python stop the message."""
    (folder / "empty.py").write_text("x = 1\n")
    with pytest.raises(InputError, match="it has no function to call"):
        refuse_missing("empty.py")
    (folder / "broken.py").write_text("def make(:\n")
    with pytest.raises(InputError, match=r"must be file\.py:callable"):
        refuse_missing("broken.py")


def test_a_hub_id_that_is_a_folder_here_is_the_folder(folder):
    """What was downloaded as owner/name is read."""
    (folder / "owner" / "name").mkdir(parents=True)
    refuse_missing("owner/name")
