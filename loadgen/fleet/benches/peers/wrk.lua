-- The peer wrk: posts the file that PEER_BODY names.
local file = assert(io.open(os.getenv("PEER_BODY"), "rb"))
wrk.method = "POST"
wrk.body = file:read("*a")
wrk.headers["Content-Type"] = "application/json"
wrk.headers["Accept"] = "application/json"
file:close()
