"""What tests of several folders share."""

from chromium import browser

__all__ = ["browser"]
