-- The sandbox: builds what scripts see from the standard library and the functions of the host. Runs once per
-- interpreter; what a script can reach of it can be neither changed nor extended.
--
-- A table that scripts may read and not change is an empty stand-in whose metatable leads to the table behind it. So
-- each function of the library that reads or writes a table without its metatable has to know the stand-ins; those are
-- the host's.
--
-- Errors about the arguments of a function here are raised for the caller's line by hand, since the interpreter's
-- functions would name a line of this file.

local redis, behind, shown_metatables, server, for_functions = ...

local host = {}
for name in ('look random randomseed find match gsub gmatch_step gsub_step format next pairs rawget rawset getmetatable'
  .. ' setmetatable insert unpack loadstring error'):gmatch('%S+') do
  host[name], redis[name] = redis[name], nil
end

local raw = { pcall = pcall, collectgarbage = collectgarbage, foreach = table.foreach, setfenv = setfenv }
local coroutines = coroutine
local error, type, rawget, select, setmetatable = error, type, rawget, select, setmetatable
local tonumber, tostring, bit = tonumber, tostring, bit
local byte, sub, rep, concat = string.byte, string.sub, string.rep, table.concat
local floor, log, max, min, huge, pi = math.floor, math.log, math.max, math.min, math.huge, math.pi
local textual = { string = true, number = true }

local function kind_of(n, ...)
  return n > select('#', ...) and 'no value' or type((select(n, ...)))
end

-- The text of an error about argument `n` of a function.
local function bad(n, name, wanted, ...)
  return "bad argument #" .. n .. " to '" .. name .. "' (" .. wanted .. ' expected, got ' .. kind_of(n, ...) .. ')'
end

--- Stand-ins ---

local function refuse() error('Attempt to modify a readonly table', 2) end

local function readonly(t)
  local stand_in = {}
  behind[stand_in] = t
  return setmetatable(stand_in, { __index = t, __newindex = refuse, __metatable = false })
end

local function pick(from, names)
  local picked = {}
  for name in names:gmatch('%S+') do picked[name] = from[name] end
  return picked
end

local globals = pick(_G, 'gcinfo rawequal select tonumber tostring type')
local globals_stand_in = readonly(globals)
globals._VERSION = 'Lua 5.1'
globals._G = globals_stand_in
for name in ('next pairs rawget rawset getmetatable setmetatable unpack error'):gmatch('%S+') do
  globals[name] = host[name]
end

-- The interpreter's own would not say which type it wants of what is not there.
local ipairs = ipairs
function globals.ipairs(...)
  if type((...)) ~= 'table' then error(bad(1, 'ipairs', 'table', ...), 2) end
  return ipairs((...))
end

--- Nesting ---

-- [1] counts the coroutines that were resumed by one another, each of which uses the native stack. They always end in
-- the reverse order of their beginning, so each puts back what it found.
-- [2] counts nested catching calls, so that a script that was killed does not have to be thrown out of thousands.
-- The host sets both to zero before each script.
local nesting = { 0, 0 }
local NESTING_MAX = 198
local TOO_DEEP = 'C stack overflow'

--- Calls that catch errors ---

-- An error of the library is a table, which scripts get as its text.
local function caught(depth, ok, ...)
  nesting[2] = depth
  if ok then return ok, ... end
  local problem = ...
  local text = type(problem) == 'table' and rawget(problem, 'err')
  if type(text) == 'string' then return false, text end
  return false, problem
end

function globals.pcall(...)
  local depth = nesting[2]
  if select('#', ...) == 0 then return false, 'attempt to call a boolean value' end
  if depth > NESTING_MAX then return false, TOO_DEEP end
  nesting[2] = depth + 1
  return caught(depth, raw.pcall(...))
end

local function handled(handler, depth, ok, ...)
  nesting[2] = depth
  if ok then return ok, ... end
  local ok, result = raw.pcall(handler, (...))
  return false, ok and result or 'error in error handling'
end

-- The handler runs after the call has ended, so that the hook can end a handler that does not.
function globals.xpcall(f, ...)
  if select('#', ...) == 0 then error("bad argument #2 to 'xpcall' (value expected)", 2) end
  local depth = nesting[2]
  if depth > NESTING_MAX then return false, TOO_DEEP end
  nesting[2] = depth + 1
  return handled((...), depth, raw.pcall(f))
end

function globals.assert(...)
  local value, text = ...
  if value then return ... end
  if select('#', ...) == 0 then error("bad argument #1 to 'assert' (value expected)", 2) end
  if text ~= nil and not textual[type(text)] then error(bad(2, 'assert', 'string', ...), 2) end
  error(text or 'assertion failed!', 2)
end

--- Code from text ---

function globals.loadstring(...)
  local text, name = ...
  if not textual[type(text)] then error(bad(1, 'loadstring', 'string', ...), 2) end
  text = tostring(text)
  if name == nil then name = text end
  if not textual[type(name)] then error(bad(2, 'loadstring', 'string', ...), 2) end
  return host.loadstring(text, tostring(name))
end

local SOURCE_MAX = 2 ^ 26

-- The pieces are put together first: a hook that raises an error inside the interpreter's own loader would stay off.
function globals.load(...)
  local reader, name = ...
  if name ~= nil and not textual[type(name)] then error(bad(2, 'load', 'string', ...), 2) end
  if type(reader) ~= 'function' then error(bad(1, 'load', 'function', ...), 2) end
  local pieces, n, size = {}, 0, 0
  while true do
    local ok, piece = raw.pcall(reader)
    if not ok then return nil, piece end
    if piece == nil or piece == '' then break end
    if not textual[type(piece)] then return nil, 'reader function must return a string' end
    n = n + 1
    pieces[n] = piece
    size = size + #tostring(piece)
    if size > SOURCE_MAX then return nil, 'not enough memory' end
  end
  return globals.loadstring(concat(pieces), name or '=(load)')
end

--- Memory ---

-- What would outlast the script has no effect.
local collecting = {
  collect = true, count = true, step = true, stop = 0, restart = 0, setpause = 200, setstepmul = 200,
}

function globals.collectgarbage(...)
  host.look()
  local option, value = ...
  if option == nil then option = 'collect' end
  local known = collecting[option]
  if known == true then return raw.collectgarbage(option, value) end
  if known then return known end
  if not textual[type(option)] then error(bad(1, 'collectgarbage', 'string', ...), 2) end
  error("bad argument #1 to 'collectgarbage' (invalid option '" .. option .. "')", 2)
end

--- Libraries ---

for name in ('cjson cmsgpack struct'):gmatch('%S+') do
  globals[name], redis[name] = readonly(redis[name]), nil
end

globals.redis, globals.server = readonly(redis), readonly(server)
globals.os = readonly(pick(os, 'clock'))

local bit_library = pick(bit, 'arshift band bnot bor bswap bxor lshift rol ror rshift tobit')

function bit_library.tohex(...)
  local x, digits = ...
  if not tonumber(x) then error(bad(1, 'tohex', 'number', ...), 2) end
  if digits == nil then return bit.tohex(x) end
  if not tonumber(digits) then error(bad(2, 'tohex', 'number', ...), 2) end
  return bit.tohex(x, max(-8, min(8, digits)))
end

globals.bit = readonly(bit_library)

local math_library = pick(math, 'abs acos asin atan atan2 ceil cos cosh exp floor fmod frexp huge ldexp log10'
  .. ' max min modf pi pow sin sinh sqrt tan tanh')
math_library.mod = math.fmod

-- Those of the interpreter take more, or name no line of the script.
for name, compute in pairs({
  log = function(x) return log(x) end,
  deg = function(x) return x / (pi / 180) end,
  rad = function(x) return x * (pi / 180) end,
}) do
  math_library[name] = function(...)
    local x = tonumber((...))
    if not x then error(bad(1, name, 'number', ...), 2) end
    return compute(x)
  end
end

math_library.random, math_library.randomseed = host.random, host.randomseed
globals.math = readonly(math_library)

--- string ---

local string_library = pick(string, 'byte char dump len lower reverse sub upper')
string_library.find, string_library.match, string_library.format = host.find, host.match, host.format

function string_library.rep(...)
  local s, n = ...
  if not textual[type(s)] then error(bad(1, 'rep', 'string', ...), 2) end
  if not tonumber(n) then error(bad(2, 'rep', 'number', ...), 2) end
  return rep(s, n)
end

function string_library.gmatch(...)
  local s, p = ...
  if not textual[type(s)] then error(bad(1, 'gmatch', 'string', ...), 2) end
  if not textual[type(p)] then error(bad(2, 'gmatch', 'string', ...), 2) end
  local from = 0
  local function advance(next, ...)
    from = next
    return ...
  end
  return function()
    if from then return advance(host.gmatch_step(s, p, from)) end
  end
end
string_library.gfind = string_library.gmatch

-- The next match, and what it is replaced by: itself, if the replacement is nil or false.
local function replaced(s, replacement, first, last, ...)
  if not first then return end
  local value
  if type(replacement) == 'table' then value = replacement[(...)] else value = replacement(...) end
  if not value then value = sub(s, first + 1, last) end
  return first, last, value
end

function string_library.gsub(...)
  local s, p, replacement, max = ...
  local kind = type(replacement)
  if not textual[type(s)] then error(bad(1, 'gsub', 'string', ...), 2) end
  if not textual[type(p)] then error(bad(2, 'gsub', 'string', ...), 2) end
  if max == nil then max = huge end
  if type(max) ~= 'number' then
    max = tonumber(max)
    if not max then error(bad(4, 'gsub', 'number', ...), 2) end
  end
  if textual[kind] then return host.gsub(s, p, replacement, max) end
  if kind ~= 'function' and kind ~= 'table' then
    error("bad argument #3 to 'gsub' (string/function/table expected)", 2)
  end
  s = tostring(s)
  local pieces, n, from, count, len = {}, 0, 0, 0, #s
  local anchored = byte(p, 1) == 94
  while count < max do
    local first, last, piece = replaced(s, replacement, host.gsub_step(s, p, from))
    if not first then break end
    if not textual[type(piece)] then error('invalid replacement value (a ' .. type(piece) .. ')', 2) end
    count = count + 1
    if first > from then n = n + 1 pieces[n] = sub(s, from + 1, first) end
    n = n + 1
    pieces[n] = piece
    from = last
    if first == last then
      if last >= len then break end
      n = n + 1
      pieces[n] = sub(s, last + 1, last + 1)
      from = last + 1
    end
    if anchored then break end
  end
  if count == 0 then return s, 0 end
  n = n + 1
  pieces[n] = sub(s, from + 1)
  return concat(pieces), count
end

globals.string = readonly(string_library)
local metatable_of_strings = getmetatable('')
metatable_of_strings.__index = string_library
metatable_of_strings.__metatable = readonly({ __index = globals.string })

--- table ---

local table_library = pick(table, 'getn maxn')
table_library.insert = host.insert

function table_library.setn(...)
  if type((...)) ~= 'table' then error(bad(1, 'setn', 'table', ...), 2) end
  error("'setn' is obsolete", 2)
end

function table_library.remove(...)
  local t, at = ...
  if type(t) ~= 'table' then error(bad(1, 'remove', 'table', ...), 2) end
  local last = #t
  if at == nil then at = last end
  if type(at) ~= 'number' then
    at = tonumber(at)
    if not at then error(bad(2, 'remove', 'number', ...), 2) end
  end
  at = at - at % 1
  if at < 1 or at > last then return end
  local removed = t[at]
  for i = at, last - 1 do t[i] = t[i + 1] end
  t[last] = nil
  return removed
end

function table_library.foreach(...)
  local t, f = ...
  if type(t) ~= 'table' then error(bad(1, 'foreach', 'table', ...), 2) end
  if type(f) ~= 'function' then error(bad(2, 'foreach', 'function', ...), 2) end
  for key, value in host.pairs(t) do
    local result = f(key, value)
    if result ~= nil then return result end
  end
end

function table_library.foreachi(...)
  local t, f = ...
  if type(t) ~= 'table' then error(bad(1, 'foreachi', 'table', ...), 2) end
  if type(f) ~= 'function' then error(bad(2, 'foreachi', 'function', ...), 2) end
  for i = 1, #t do
    local result = f(i, t[i])
    if result ~= nil then return result end
  end
end

-- The interpreter's own function cannot be interrupted, so it gets no long work.
local CONCAT_MAX = 1000

function table_library.concat(...)
  local t, separator, first, last = ...
  if separator ~= nil and not textual[type(separator)] then error(bad(2, 'concat', 'string', ...), 2) end
  if type(t) ~= 'table' then error(bad(1, 'concat', 'table', ...), 2) end
  first, last = tonumber(first or 1), tonumber(last or #t)
  if not first then error(bad(3, 'concat', 'number', ...), 2) end
  if not last then error(bad(4, 'concat', 'number', ...), 2) end
  local pieces, n = {}, 0
  for from = first, last, CONCAT_MAX do
    local ok, piece = raw.pcall(concat, t, separator, from, min(from + CONCAT_MAX - 1, last))
    if not ok then error(piece, piece == 'not enough memory' and 0 or 2) end
    n = n + 1
    pieces[n] = piece
  end
  if n < 2 then return pieces[1] or '' end
  return table_library.concat(pieces, separator)
end

local function less(a, b) return a < b end

-- Quicksort with the median of three, the smaller part first; the comparisons of Lua 5.1 in their order, since what an
-- inconsistent order function leads to depends on it.
local function sort_range(t, low, high, before)
  while low < high do
    if before(t[high], t[low]) then t[low], t[high] = t[high], t[low] end
    if high - low == 1 then return end
    local middle = floor((low + high) / 2)
    if before(t[middle], t[low]) then
      t[middle], t[low] = t[low], t[middle]
    elseif before(t[high], t[middle]) then
      t[middle], t[high] = t[high], t[middle]
    end
    if high - low == 2 then return end
    local pivot = t[middle]
    t[middle], t[high - 1] = t[high - 1], pivot
    local i, j = low, high - 1
    while true do
      i = i + 1
      while before(t[i], pivot) do
        if i > high then error('invalid order function for sorting', 0) end
        i = i + 1
      end
      j = j - 1
      while before(pivot, t[j]) do
        if j < low then error('invalid order function for sorting', 0) end
        j = j - 1
      end
      if j < i then break end
      t[i], t[j] = t[j], t[i]
    end
    t[high - 1], t[i] = t[i], t[high - 1]
    if i - low < high - i then
      sort_range(t, low, i - 1, before)
      low = i + 1
    else
      sort_range(t, i + 1, high, before)
      high = i - 1
    end
  end
end

function table_library.sort(...)
  local t, before = ...
  if type(t) ~= 'table' then error(bad(1, 'sort', 'table', ...), 2) end
  if before ~= nil and type(before) ~= 'function' then error(bad(2, 'sort', 'function', ...), 2) end
  local ok, problem = raw.pcall(sort_range, t, 1, #t, before or less)
  if ok then return end
  if problem == 'invalid order function for sorting' then error(problem, 2) end
  if type(problem) == 'string' then problem = host.gsub(problem, '^sandbox:%d+: ', '', 1) end
  error(problem, 0)
end

globals.table = readonly(table_library)

--- Coroutines ---

local function returned(depth, ...)
  nesting[1] = depth
  return ...
end

local function resume(coroutine, ...)
  local depth = nesting[1]
  if depth > NESTING_MAX then return false, TOO_DEEP end
  nesting[1] = depth + 1
  return returned(depth, coroutines.resume(coroutine, ...))
end

local function unwrap(ok, ...)
  if ok then return ... end
  local problem = ...
  error(problem, type(problem) == 'string' and 3 or 0)
end

local coroutine_library = pick(coroutines, 'running status')

function coroutine_library.yield(...)
  if not coroutines.running() then error('attempt to yield across metamethod/C-call boundary', 0) end
  return coroutines.yield(...)
end

function coroutine_library.create(f)
  if type(f) ~= 'function' then error("bad argument #1 to 'create' (Lua function expected)", 2) end
  return coroutines.create(f)
end

function coroutine_library.resume(...)
  if type((...)) ~= 'thread' then error("bad argument #1 to 'resume' (coroutine expected)", 2) end
  return resume(...)
end

function coroutine_library.wrap(f)
  if type(f) ~= 'function' then error("bad argument #1 to 'wrap' (Lua function expected)", 2) end
  local coroutine = coroutines.create(f)
  return function(...) return unwrap(resume(coroutine, ...)) end
end

globals.coroutine = readonly(coroutine_library)

--- Globals ---

local function unknown(_, name)
  error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
end

setmetatable(globals, { __index = unknown })
shown_metatables[globals_stand_in] = readonly({ __index = unknown })

--- Libraries of functions ---

-- The functions of all libraries, by the numbers that the host gives them; and what loads a library.
local functions, load_library, stage, globals_at_load = {}, nil, nil, nil

if for_functions then
  for name in ('breakpoint debug replicate_commands'):gmatch('%S+') do redis[name], server[name] = nil, nil end

  local pending
  local flag_bits = {
    ['no-writes'] = 2, ['allow-oom'] = 4, ['allow-stale'] = 8, ['no-cluster'] = 16, ['allow-cross-slot-keys'] = 32,
  }

  -- `whole`: the error says all, and what refuses the library adds nothing.
  local function fail(text, whole) error({ err = 'ERR ' .. text, whole = whole }, 0) end

  local function flags_of(list)
    local bits, i = 0, 1
    while true do
      local name = rawget(list, i)
      if name == nil then return bits end
      local bit_of_name = textual[type(name)] and flag_bits[string_library.lower(name)]
      if not bit_of_name then fail('unknown flag given') end
      bits = bit.bor(bits, bit_of_name)
      i = i + 1
    end
  end

  -- The function `register_function` of the table of that name. `named` is what its errors about a name begin with.
  local function registrar(library, named, whole)
    local this = library .. '.register_function'

    local function register(name, callback, flags, description)
      name = tostring(name)
      if not host.match(name, '^[%w_]+$') then
        fail(named .. ' names can only contain letters, numbers, or underscores(_) and must be at least one character long',
          whole)
      end
      local key = string_library.lower(name)
      if pending.names[key] then fail('Function already exists in the library', whole) end
      pending.names[key] = true
      local n = #pending.callbacks
      pending.callbacks[n + 1] = callback
      pending.specs[3 * n + 1] = name
      pending.specs[3 * n + 2] = flags
      pending.specs[3 * n + 3] = description and tostring(description) or false
    end

    local function register_named(arguments)
      local name, callback, flags, description = nil, nil, 0, nil
      for key, value in host.next, arguments do
        if not textual[type(key)] then fail('named argument key given to ' .. this .. ' is not a string') end
        key = string_library.lower(key)
        if key == 'function_name' then
          if not textual[type(value)] then fail('function_name argument given to ' .. this .. ' must be a string') end
          name = value
        elseif key == 'description' then
          if not textual[type(value)] then fail('description argument given to ' .. this .. ' must be a string') end
          description = value
        elseif key == 'callback' then
          if type(value) ~= 'function' then fail('callback argument given to ' .. this .. ' must be a function') end
          callback = value
        elseif key == 'flags' then
          if type(value) ~= 'table' then
            fail('flags argument to ' .. this .. ' must be a table representing function flags')
          end
          flags = flags_of(value)
        else
          fail('unknown argument given to ' .. this)
        end
      end
      if not name then fail(this .. ' must get a function name argument') end
      if not callback then fail(this .. ' must get a callback argument') end
      register(name, callback, flags, description)
    end

    return function(...)
      if not pending then fail(this .. ' can only be called on FUNCTION LOAD command') end
      local n = select('#', ...)
      local name, callback = ...
      if n < 1 or n > 2 then fail('wrong number of arguments to ' .. this) end
      if n == 1 then
        if type(name) ~= 'table' then
          fail('calling ' .. this .. ' with a single argument is only applicable to Lua table'
            .. ' (representing named arguments).')
        end
        return register_named(name)
      end
      if not textual[type(name)] then fail('first argument to ' .. this .. ' must be a string') end
      if type(callback) ~= 'function' then fail('second argument to ' .. this .. ' must be a function') end
      register(name, callback, 0, nil)
    end
  end

  local at_load = 'log LOG_DEBUG LOG_VERBOSE LOG_NOTICE LOG_WARNING REDIS_VERSION REDIS_VERSION_NUM'
  local redis_at_load = pick(redis, at_load)
  redis_at_load.register_function = registrar('redis', 'Library')
  local server_at_load = pick(server, at_load .. ' SERVER_NAME VALKEY_VERSION VALKEY_VERSION_NUM')
  server_at_load.register_function = registrar('server', 'Function', true)
  for _, library in ipairs({ redis_at_load, server_at_load }) do setmetatable(library, { __index = unknown }) end
  globals_at_load = setmetatable({ redis = readonly(redis_at_load), server = readonly(server_at_load) },
    { __index = unknown })

  -- The globals of all libraries: few while one is loaded, all while a function runs. The host changes them.
  stage = { __index = globals, __newindex = refuse, __metatable = false }
  local environment = setmetatable({}, stage)

  -- What has been registered, three values a function; or nil, the error, and its kind: 1 is the compiler's, 2 says all that
  -- is to be said.
  load_library = function(source, first_id)
    local chunk, problem = host.loadstring(source, '@user_function')
    if not chunk then return nil, problem, 1 end
    raw.setfenv(chunk, environment)
    pending = { names = {}, callbacks = {}, specs = {} }
    local ok, problem = raw.pcall(chunk)
    local loaded = pending
    pending = nil
    if not ok then
      local kind = type(problem) == 'table' and rawget(problem, 'whole') == true and 2 or 0
      if type(problem) == 'table' then problem = rawget(problem, 'err') else problem = 'ERR ' .. tostring(problem) end
      return nil, type(problem) == 'string' and problem or 'ERR unknown error', kind
    end
    for i = 1, #loaded.callbacks do functions[first_id + i - 1] = loaded.callbacks[i] end
    return loaded.specs
  end
end

return globals_stand_in, globals, nesting, functions, load_library, stage, globals_at_load
