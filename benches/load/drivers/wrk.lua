-- wrk's threads go through the same requests, each from a place of its own. Arguments: a file of requests, a length and
-- a line feed before each.
local threads = 0

function setup(thread)
  thread:set("number", threads)
  threads = threads + 1
end

function init(args)
  local file = assert(io.open(args[1], "rb"))
  requests, count = {}, 0
  while true do
    local length = file:read("*n")
    if not length then break end
    file:read(1)
    count = count + 1
    requests[count] = file:read(length)
  end
  file:close()
  at = math.floor(count * number / 2)
end

function request()
  at = at % count + 1
  return requests[at]
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format("result %d %d %d %d\n", summary.requests, latency:percentile(50), errors.status,
    errors.connect + errors.read + errors.write + errors.timeout))
end
