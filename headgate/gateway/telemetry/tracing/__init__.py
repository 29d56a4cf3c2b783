"""Spans of requests by OpenTelemetry's conventions, and their way to a collector."""
