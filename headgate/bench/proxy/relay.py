"""A proxy of aiohttp that passes bytes on and does nothing else: what any proxy in Python takes at least.

Run as a process of its own, with the upstream's URL.
"""

from __future__ import annotations

import asyncio
import sys

import aiohttp
from aiohttp import web


async def serve(upstream: str) -> None:
    """Pass on until cancelled."""
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as session:

        async def relay(request: web.Request) -> web.StreamResponse:
            body, head = await request.read(), {"Content-Type": "application/json"}
            async with session.post(upstream + request.path, data=body, headers=head) as reply:
                if reply.content_type == "application/json":
                    return web.Response(body=await reply.read(), content_type="application/json")
                response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
                await response.prepare(request)
                async for piece in reply.content.iter_any():
                    await response.write(piece)
                await response.write_eof()
                return response

        app = web.Application()
        app.router.add_post("/v1/chat/completions", relay)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    import uvloop

    uvloop.run(serve(sys.argv[1]))
