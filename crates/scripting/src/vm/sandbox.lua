-- The sandbox: builds what scripts see from the standard library and the functions of the host. Runs once per
-- interpreter; what a script can reach of it can be neither changed nor extended.
--
-- A table that scripts may read and not change is an empty stand-in whose metatable leads to the table behind it. So
-- each function of the library that reads or writes a table without its metatable has to know the stand-ins: here.

local redis = ...
local host = {}
for name in ('look random randomseed find match gsub gmatch_step gsub_step'):gmatch('%S+') do
  host[name], redis[name] = redis[name], nil
end
local look = host.look

local raw = {
  pcall = pcall, next = next, pairs = pairs, rawget = rawget, rawset = rawset, loadstring = loadstring,
  getmetatable = getmetatable, setmetatable = setmetatable, insert = table.insert, foreach = table.foreach,
  sort = table.sort, remove = table.remove, maxn = table.maxn, collectgarbage = collectgarbage,
  resume = coroutine.resume, create = coroutine.create, status = coroutine.status, yield = coroutine.yield,
  running = coroutine.running,
}
local error, type, rawget, select, setmetatable, tostring = error, type, rawget, select, setmetatable, tostring
local byte, sub, concat = string.byte, string.sub, table.concat
local floor, min = math.floor, math.min
local textual = { string = true, number = true }

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

--- Nesting ---

-- [1] counts the nested calls that use the native stack: of one coroutine by another, of a script's function by the
-- library. These always end in the reverse order of their beginning, so each puts back what it found.
-- [2] counts nested catching calls, so that a script that was killed does not have to be thrown out of thousands.
-- The host sets both to zero before each script.
local nesting = { 0, 0 }
local NESTING_MAX = 198
local TOO_DEEP = 'C stack overflow'

--- Calls that catch errors ---

-- An error of the library is a table, which scripts get as its text.
local function caught(depth, ok, problem, ...)
  nesting[2] = depth
  if ok or type(problem) ~= 'table' then return ok, problem, ... end
  local text = rawget(problem, 'err')
  if type(text) == 'string' then return false, text end
  return false, problem
end

function globals.pcall(...)
  local depth = nesting[2]
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

local SOURCE_MAX = 2 ^ 26

-- The pieces are put together first: a hook that raises an error inside the interpreter's own loader would stay off.
function globals.load(reader, name)
  if type(reader) ~= 'function' then
    error("bad argument #1 to 'load' (function expected, got " .. type(reader) .. ')', 2)
  end
  local pieces, n, size = {}, 0, 0
  while true do
    local ok, piece = raw.pcall(reader)
    if not ok then return nil, piece end
    if piece == nil or piece == '' then break end
    if type(piece) ~= 'string' and type(piece) ~= 'number' then
      return nil, 'reader function must return a string'
    end
    n = n + 1
    pieces[n] = piece
    size = size + #tostring(piece)
    if size > SOURCE_MAX then return nil, 'not enough memory' end
  end
  return globals.loadstring(concat(pieces), name or '=(load)')
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
math.random, math.randomseed = host.random, host.randomseed
globals.math = readonly(math)

local string = string
local string_library = pick(string, 'byte char dump len lower rep reverse sub upper')
string_library.find, string_library.match = host.find, host.match

function string_library.gmatch(s, p)
  if not textual[type(s)] or not textual[type(p)] then return string.gmatch(s, p) end
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

-- What a match is replaced by: itself, if the replacement is nil or false.
local function chosen(value, whole)
  if value then
    local kind = type(value)
    if kind ~= 'string' and kind ~= 'number' then error('invalid replacement value (a ' .. kind .. ')', 4) end
    return value
  end
  return whole
end

local function apply(replacement, s, first, last, ...)
  if first == nil then return end
  local value
  if type(replacement) == 'table' then value = replacement[(...)] else value = replacement(...) end
  return first, last, chosen(value, sub(s, first + 1, last))
end

function string_library.gsub(s, p, replacement, ...)
  local kind, max = type(replacement), ...
  if (kind ~= 'function' and kind ~= 'table') or not textual[type(s)] or not textual[type(p)] then
    return host.gsub(s, p, replacement, ...)
  end
  s, max = tostring(s), max == nil and math.huge or max
  local pieces, n, from, count, len = {}, 0, 0, 0, #s
  local anchored = byte(p, 1) == 94
  while count < max do
    local first, last, piece = apply(replacement, s, host.gsub_step(s, p, from))
    if not first then break end
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

-- `%s` takes text only. (The interpreter would call `__tostring`, on the native stack.)
function string_library.format(template, ...)
  local untextual
  for i = 1, select('#', ...) do
    untextual = untextual or not textual[type((select(i, ...)))]
  end
  if untextual and textual[type(template)] then
    local i = 0
    for conversion in string_library.gmatch(template, '%%[-+ #0]*%d*%.?%d*(.)') do
      if conversion ~= '%' then i = i + 1 end
      if conversion == 's' or conversion == 'q' then
        local kind = i > select('#', ...) and 'no value' or type((select(i, ...)))
        if not textual[kind] then
          error("bad argument #" .. i + 1 .. " to 'format' (string expected, got " .. kind .. ')', 2)
        end
      end
    end
  end
  return string.format(template, ...)
end

globals.string = readonly(string_library)
local metatable_of_strings = raw.getmetatable('')
metatable_of_strings.__index = string_library
metatable_of_strings.__metatable = readonly({ __index = globals.string })

local table_library = pick(table, 'foreachi getn maxn remove setn')

function table_library.insert(...)
  if behind[(...)] then error(READONLY, 0) end
  return raw.insert(...)
end

function table_library.foreach(t, f)
  return raw.foreach(behind[t] or t, f)
end

-- The interpreter's own functions cannot be interrupted, so they get no long work.
local CONCAT_MAX = 1000

function table_library.concat(t, separator, i, j)
  local first, last = i or 1, type(t) == 'table' and (j or #t)
  if type(first) ~= 'number' or type(last) ~= 'number' or last - first < CONCAT_MAX then
    return concat(t, separator, i, j)
  end
  local pieces, n = {}, 0
  for from = first, last, CONCAT_MAX do
    local ok, piece = raw.pcall(concat, t, separator, from, min(from + CONCAT_MAX - 1, last))
    if not ok then error(piece, 2) end
    n = n + 1
    pieces[n] = piece
  end
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
  if type(t) ~= 'table' or (before ~= nil and type(before) ~= 'function') then return raw.sort(...) end
  local ok, problem = raw.pcall(sort_range, t, 1, #t, before or less)
  if not ok then
    if type(problem) == 'string' then problem = host.gsub(problem, '^sandbox:%d+: ', '') end
    error(problem, 0)
  end
end

globals.table = readonly(table_library)

--- Coroutines ---

local function returned(depth, ...)
  nesting[1] = depth
  return ...
end

local function resume(...)
  local depth = nesting[1]
  if depth > NESTING_MAX then return false, TOO_DEEP end
  nesting[1] = depth + 1
  return returned(depth, raw.resume(...))
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

return globals_stand_in, globals, nesting
