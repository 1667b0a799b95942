"""A lake's root is a folder or s3a://, and any other is refused when the configuration is read: not by a stage that
waits for a store's credentials, or by Spark for the want of a class."""

from __future__ import annotations

import pytest

from lakeward.cli import main
from lakeward.config import parse
from lakeward.errors import ConfigError


@pytest.mark.parametrize("root", ["lake", "/var/lib/lake", "../a:b/lake", "s3a://bucket", "s3a://bucket/lakes/one"])
def test_a_folder_and_s3a_are_roots(root):
    assert parse({"lake": {"root": root}}).lake.root == root


@pytest.mark.parametrize(
    ("root", "said"),
    [
        ("gs://bucket/lake", "do not have Spark's connector for it, and no test has had a lake there"),
        ("abfss://box@acc.dfs.core.windows.net/lake", "Arrow empties a file there before it writes it anew"),
        ("wasbs://box@acc.blob.core.windows.net/lake", "Arrow empties a file there"),
        ("s3://bucket/lake", "Spark knows this store as s3a://"),
        ("S3A://bucket/lake", "small letters"),
        ("hdfs://name/lake", "no test has had a lake there"),
        ("file:///var/lib/lake", "a folder is written without a scheme"),
        ("file:/var/lib/lake", "a folder is written without a scheme"),
        ("s3a:/bucket/lake", "names no bucket"),
        ("s3a:///lake", "names no bucket"),
    ],
)
def test_any_other_root_is_refused_with_the_reason(root, said):
    with pytest.raises(ConfigError, match=r"\[lake\] root = ") as found:
        parse({"lake": {"root": root}})
    assert said in found.value.message
    assert "s3a://bucket/path" in (found.value.hint or "")
    assert "box@" not in found.value.message  # what stands before an @ may be a secret


def test_a_command_ends_for_it_before_anything_is_asked_of_the_store(tmp_path, capsys):
    file = tmp_path / "lakeward.toml"
    file.write_text('[lake]\nroot = "abfss://box@acc.dfs.core.windows.net/lake"\n')
    assert main(["-c", str(file), "status"]) == 2
    assert "[lake] root = 'abfss://acc.dfs.core.windows.net/lake' cannot hold a lake" in capsys.readouterr().err
