"""The OpenAPI document, made from the wire types."""
