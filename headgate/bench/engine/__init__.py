"""The engine alone: tokens in, tokens out, no HTTP."""
