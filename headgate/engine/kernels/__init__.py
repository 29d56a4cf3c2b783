"""Numeric operations behind one signature each, with a plain-torch reference."""
