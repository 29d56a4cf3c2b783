"""Picture files, and requests that show them."""

from __future__ import annotations

import base64
import io
import struct
import zlib
from typing import Any

import numpy as np
from PIL import Image


def gradient(width: int, height: int, seed: int = 0) -> Image.Image:
    """A picture whose every corner is of another colour."""
    x, y = np.meshgrid(np.arange(width) * 255 // max(1, width - 1), np.arange(height) * 255 // max(1, height - 1))
    return Image.fromarray(np.stack([x, y, np.full_like(x, 40 * seed % 256)], axis=-1).astype(np.uint8))


def file_of(image: Image.Image, form: str = "PNG", **options: Any) -> bytes:
    """A file of a picture."""
    written = io.BytesIO()
    image.save(written, form, **options)
    return written.getvalue()


def data_url(file: bytes, kind: str = "image/png") -> str:
    """A file as requests have it."""
    return f"data:{kind};base64,{base64.b64encode(file).decode()}"


def shown(file: bytes, **fields: Any) -> dict[str, Any]:
    """A part of a chat's message."""
    return {"type": "image_url", "image_url": {"url": data_url(file), **fields}}


def hollow_png(width: int, height: int) -> bytes:
    """A small file that says it is as large as that."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
