import json
import threading

import pytest

from skprivbn.utils._locked_file import hold_lock, replace_file


def test_a_file_is_replaced_as_a_whole_or_not_at_all(tmp_path):
    path = tmp_path / "state.json"
    replace_file(path, b'{"n": 1}')
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o640)
    with pytest.raises(TypeError):
        replace_file(path, "not bytes")
    assert json.loads(path.read_text()) == {"n": 1}
    replace_file(path, b'{"n": 3}')
    assert json.loads(path.read_text()) == {"n": 3}
    assert path.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [path]


def test_the_lock_is_held_by_one_at_a_time(tmp_path):
    path, order = tmp_path / "state.json", []

    def wait():
        with hold_lock(path):
            order.append("second")

    with hold_lock(path):
        other = threading.Thread(target=wait)
        other.start()
        other.join(0.2)
        order.append("first")
    other.join(10)
    assert order == ["first", "second"]
