-- The sandbox: builds what scripts see from the standard library and the functions of the host. Runs once per
-- interpreter; what a script can reach of it can be neither changed nor extended.
--
-- A table that scripts may read and not change is an empty stand-in whose metatable leads to the table behind it. So
-- each function of the library that reads or writes a table without its metatable has to know the stand-ins: here.

local redis = ...
local look = redis.look
redis.look = nil

local raw = {
  pcall = pcall, next = next, pairs = pairs, rawget = rawget, rawset = rawset, load = load, loadstring = loadstring,
  getmetatable = getmetatable, setmetatable = setmetatable, insert = table.insert, foreach = table.foreach,
  sort = table.sort, remove = table.remove, maxn = table.maxn, collectgarbage = collectgarbage,
  resume = coroutine.resume, create = coroutine.create, status = coroutine.status, yield = coroutine.yield,
  running = coroutine.running,
}
local error, type, rawget, select, setmetatable, tostring = error, type, rawget, select, setmetatable, tostring
local byte = string.byte

local READONLY = 'Attempt to modify a readonly table'

local behind = setmetatable({}, { __mode = 'k' })

local function refuse() error(READONLY, 2) end

local function readonly(t, index)
  local stand_in = {}
  behind[stand_in] = t
  return setmetatable(stand_in, { __index = index or t, __newindex = refuse, __metatable = false })
end

-- Names that scripts may use, and where they lead.
local globals = {}
local globals_stand_in = readonly(globals)

local function pick(from, names)
  local picked = {}
  for name in names:gmatch('%S+') do picked[name] = from[name] end
  return picked
end

for name, value in raw.pairs(pick(_G, 'assert error gcinfo ipairs rawequal select tonumber tostring type unpack')) do
  globals[name] = value
end
globals._VERSION = 'Lua 5.1'
globals._G = globals_stand_in

--- Tables without their metatables ---

function globals.next(t, key)
  local hidden = behind[t]
  if hidden then return raw.next(hidden, key) end
  return raw.next(t, key)
end

function globals.pairs(t)
  local hidden = behind[t]
  if hidden then return function(_, key) return raw.next(hidden, key) end, t, nil end
  return raw.pairs(t)
end

function globals.rawget(t, key)
  return raw.rawget(behind[t] or t, key)
end

function globals.rawset(t, key, value)
  if behind[t] then error(READONLY, 0) end
  return raw.rawset(t, key, value)
end

local shown_metatable = setmetatable({}, { __mode = 'k' })

function globals.getmetatable(...)
  local value = ...
  if behind[value] then return shown_metatable[value] end
  return raw.getmetatable(...)
end

function globals.setmetatable(...)
  if behind[(...)] then error(READONLY, 0) end
  return raw.setmetatable(...)
end

--- Calls that catch errors ---

-- An error of the library is a table, which scripts get as its text.
local function caught(ok, problem, ...)
  if ok or type(problem) ~= 'table' then return ok, problem, ... end
  local text = rawget(problem, 'err')
  if type(text) == 'string' then return false, text end
  return false, problem
end

function globals.pcall(...)
  return caught(raw.pcall(...))
end

-- The handler runs after the call has ended, so that the hook can end a handler that does not.
local function handled(handler, ok, ...)
  if ok then return ok, ... end
  return false, select(2, raw.pcall(handler, (...)))
end

function globals.xpcall(f, ...)
  if select('#', ...) == 0 then error("bad argument #2 to 'xpcall' (value expected)", 2) end
  return handled((...), raw.pcall(f))
end

--- Code from text ---

function globals.loadstring(text, name)
  if type(text) == 'number' then text = tostring(text) end
  if type(text) == 'string' then
    if name == nil then name = text end
    -- Compiled code would be run unchecked; after a space it is text, and bad text at that.
    if byte(text, 1) == 27 then text = ' ' .. text end
  end
  return raw.loadstring(text, name)
end

function globals.load(reader, name)
  if type(reader) ~= 'function' then
    error("bad argument #1 to 'load' (function expected, got " .. type(reader) .. ')', 2)
  end
  return raw.load(reader, name or '=(load)', 't')
end

--- Libraries ---

function globals.collectgarbage(option, value)
  look()
  if option == nil or option == 'collect' or option == 'count' or option == 'step' then
    return raw.collectgarbage(option, value)
  end
  -- The rest would outlast the script.
  if option == 'stop' or option == 'restart' then return 0 end
  if option == 'setpause' or option == 'setstepmul' then return 200 end
  return raw.collectgarbage(option)
end

globals.redis = readonly(redis)
globals.os = readonly(pick(os, 'clock'))
globals.bit = readonly(pick(bit, 'arshift band bnot bor bswap bxor lshift rol ror rshift tobit tohex'))

local math = pick(math, 'abs acos asin atan atan2 ceil cos cosh deg exp floor fmod frexp huge ldexp log log10 max min'
  .. ' mod modf pi pow rad sin sinh sqrt tan tanh')
math.mod = math.mod or math.fmod
math.random, math.randomseed = redis.random, redis.randomseed
redis.random, redis.randomseed = nil, nil
globals.math = readonly(math)

local string_library = pick(string, 'byte char dump find format gfind gmatch gsub len lower match rep reverse sub upper')
string_library.gfind = string_library.gmatch
globals.string = readonly(string_library)
local metatable_of_strings = raw.getmetatable('')
metatable_of_strings.__index = string_library
metatable_of_strings.__metatable = readonly({ __index = globals.string })

local table_library = pick(table, 'concat foreach foreachi getn insert maxn remove setn sort')

function table_library.insert(...)
  if behind[(...)] then error(READONLY, 0) end
  return raw.insert(...)
end

function table_library.foreach(t, f)
  return raw.foreach(behind[t] or t, f)
end

globals.table = readonly(table_library)

--- Coroutines ---

-- Each resumed coroutine uses the native stack of the one that resumed it.
local RESUMED_MAX = 190
local resumed = 0

local function returned(...)
  resumed = resumed - 1
  return ...
end

local function resume(...)
  if resumed >= RESUMED_MAX then return false, 'C stack overflow' end
  resumed = resumed + 1
  return returned(raw.resume(...))
end

local function unwrap(ok, ...)
  if ok then return ... end
  local problem = ...
  if type(problem) == 'string' then error(problem, 3) end
  error(problem, 0)
end

local function wrap(f)
  local coroutine = raw.create(f)
  return function(...) return unwrap(resume(coroutine, ...)) end
end

globals.coroutine = readonly({
  create = raw.create, resume = resume, running = raw.running, status = raw.status, wrap = wrap, yield = raw.yield,
})

--- Globals ---

local function unknown(_, name)
  error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
end

setmetatable(globals, { __index = unknown })
shown_metatable[globals_stand_in] = readonly({ __index = unknown })

return globals_stand_in, globals
