"""For all tests."""

import signal

from hypothesis import settings

# Machines that run tests are busy: how long one example takes says nothing.
settings.register_profile("peakmem", deadline=None)
settings.load_profile("peakmem")

# Shells start what they put into the background with Ctrl-C ignored, and every process below inherits that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
