import os
import pickle

import pytest

from peakmem.errors import PeakmemError
from peakmem.session.reading import FORMAT, read_outcome, read_progress


class Evil:
    def __reduce__(self):
        return os.system, ("touch /tmp/peakmem-was-here",)


def recording(steps, reserved):
    return {"format": FORMAT, "steps": [{}] * steps, "devices": [{"peak": {"reserved": reserved}}]}


def test_the_process_that_trained_is_the_one_with_most_steps(tmp_path):
    (tmp_path / "process-1.pickle").write_bytes(pickle.dumps(recording(0, 500)))
    (tmp_path / "process-2.pickle").write_bytes(pickle.dumps(recording(3, 100)))
    assert len(read_outcome(tmp_path).main()["steps"]) == 3


def test_no_process_at_all_is_no_error(tmp_path):
    assert read_outcome(tmp_path).main() is None


@pytest.mark.parametrize(
    "content",
    [pickle.dumps(Evil()), pickle.dumps(recording(1, 1))[:-9], b"", b"nonsense", pickle.dumps({"format": "x"})],
)
def test_a_damaged_or_foreign_recording_is_refused(tmp_path, content):
    (tmp_path / "process-1.pickle").write_bytes(content)
    with pytest.raises(PeakmemError):
        read_outcome(tmp_path)


def test_a_progress_line_being_written_is_left_out(tmp_path):
    (tmp_path / "progress.jsonl").write_text('{"event": "torch"}\n{"event": "st')
    assert read_progress(tmp_path) == [{"event": "torch"}]
