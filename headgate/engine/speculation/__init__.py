"""Speculative decoding: tokens that are proposed before they are computed, and which of them hold."""
