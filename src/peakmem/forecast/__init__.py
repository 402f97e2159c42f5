"""From a recording and a device to a Forecast: the sums, the peak, the verdict."""
