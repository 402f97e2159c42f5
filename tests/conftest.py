"""For all tests."""

from hypothesis import settings

# Machines that run tests are busy: how long one example takes says nothing.
settings.register_profile("peakmem", deadline=None)
settings.load_profile("peakmem")
