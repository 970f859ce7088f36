"""The unit of time: time stamps are picoseconds, as the RedFIR system gives them."""

SECOND = 10**12
MILLISECOND = 10**9
