"""Signals ask a run to stop, and do what they did before when it has ended."""

import os
import signal

import jax
import pytest
from jax.experimental import multihost_utils

from spr_jax.io.signals import stop_on_signals

NUMBERS = (signal.SIGTERM, signal.SIGINT)


def handlers():
    return {number: signal.getsignal(number) for number in NUMBERS}


@pytest.mark.parametrize("number", NUMBERS)
def test_a_signal_asks_to_stop_once(number, capsys):
    before = handlers()
    with stop_on_signals() as should_stop:
        assert not should_stop(1) and all(h != before[n] for n, h in handlers().items())
        os.kill(os.getpid(), number)
        assert should_stop(2) and should_stop(3)
        assert "once more" in capsys.readouterr().err
        assert signal.getsignal(number) == before[number]  # once more stops at once
    assert handlers() == before


def test_the_handlers_come_back_after_an_error():
    before = handlers()
    with pytest.raises(KeyError), stop_on_signals():
        raise KeyError
    assert handlers() == before


def test_processes_leave_sigterm_to_jax(monkeypatch, capsys):
    """Python does not see JAX's handler, so it could not put it back."""
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(multihost_utils, "reached_preemption_sync_point", lambda step: step == 5)
    usual, touched, received = signal.signal, [], []
    before = handlers()

    def watch(number, handler):
        touched.append(number)
        return usual(number, handler)

    usual(signal.SIGTERM, lambda *_: received.append("SIGTERM"))
    try:
        with monkeypatch.context() as patched:
            patched.setattr(signal, "signal", watch)
            with stop_on_signals() as should_stop:
                os.kill(os.getpid(), signal.SIGINT)  # is sent on, so that JAX hears of it
                assert received == ["SIGTERM"]
                assert [should_stop(step) for step in (4, 5, 6)] == [False, True, True]
    finally:
        usual(signal.SIGTERM, before[signal.SIGTERM])
    assert set(touched) == {signal.SIGINT} and handlers() == before
