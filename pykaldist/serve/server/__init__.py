"""A finished model as a server, for programs that speak Vosk's protocol, for curl, and for browsers.

Read in this order: `options.py`, its limits; `sessions.py`, what one client says on its way through the model; `phrases.py`, what a client
expects to be said; `engine.py`, the model, which all share; `conversation.py`, Vosk's messages; `http_server.py`, HTTP and WebSockets;
`page.html`, the page, and `recorder.js`, its microphone.
"""
