// Who calls what: a round is some clients that call at the same time, against two databases that were empty before.

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// Clients of a lane, the last of which is killed now and then. They share two databases with nobody else.
const clients = 6

// Runs the calls that it is given, and tells what each of them answered.
const script = `local out = {}
for _, call in ipairs(cjson.decode(ARGV[1])) do out[#out + 1] = redis.pcall(unpack(call)) end
return out`

// What a lane is about: how often, of a hundred units, it does what.
type flavour struct {
	name                             string
	units                            int
	expiring, lists, blocking, swaps int
	several, watches                 int
	// The longest pause between two units of a client.
	pause time.Duration
}

// Each has two databases of its own.
var flavours = []flavour{
	{name: "strings", units: 18, several: 35, watches: 20},
	{name: "lists", units: 16, lists: 100, blocking: 35, several: 25, watches: 5},
	{name: "lists", units: 16, lists: 100, blocking: 35, several: 25, watches: 5},
	{name: "everything", units: 16, lists: 50, blocking: 15, swaps: 12, several: 30, watches: 12},
	{name: "everything", units: 16, lists: 50, blocking: 15, swaps: 12, several: 30, watches: 12},
	expiry, expiry, expiry,
}

// Slow, so that some keys stay until their time is over.
var expiry = flavour{name: "expiry", units: 16, expiring: 75, lists: 5, swaps: 3, several: 35, pause: 300 * time.Millisecond}

// A lane: connections, and where they work.
type lane struct {
	flavour
	address string
	// The databases of the server that are 0 and 1 here.
	dbs   [2]int
	conns [clients]*conn
	ids   [clients]string
	// Which of the two databases a client uses.
	uses [clients]int
	rng  *rand.Rand
	// Makes each value a new one.
	values int
}

func newLane(address string, f flavour, firstDB int, seed int64) (*lane, error) {
	l := &lane{flavour: f, address: address, dbs: [2]int{firstDB, firstDB + 1}, rng: rand.New(rand.NewSource(seed))}
	for at := range l.conns {
		l.uses[at] = at % 2
		if f.swaps == 0 {
			l.uses[at] = 0
		}
		var err error
		l.conns[at], l.ids[at], err = l.connect(l.uses[at])
		if err != nil {
			return nil, err
		}
	}
	return l, nil
}

func (l *lane) connect(db int) (*conn, string, error) {
	c, err := dial(l.address)
	if err != nil {
		return nil, "", err
	}
	id, err := c.call([]string{"SELECT", strconv.Itoa(l.dbs[db])}, []string{"CLIENT", "ID"})
	return c, id[min(1, len(id)):], err
}

func (l *lane) close() {
	for _, c := range l.conns {
		c.Close()
	}
}

// One round: every client does its units, and all that happened comes back in the order of calls.
func (l *lane) round() ([]porcupine.Operation, error) {
	for _, db := range l.dbs {
		for _, call := range [][]string{{"SELECT", strconv.Itoa(db)}, {"FLUSHDB"}} {
			if _, err := l.conns[0].call(call); err != nil {
				return nil, err
			}
		}
	}
	if _, err := l.conns[0].call([]string{"SELECT", strconv.Itoa(l.dbs[l.uses[0]])}); err != nil {
		return nil, err
	}
	var (
		histories [clients][]porcupine.Operation
		errs      [clients]error
		all       sync.WaitGroup
		began     = time.Now()
	)
	for at := range l.conns {
		c := &client{lane: l, index: at, rng: rand.New(rand.NewSource(l.rng.Int63())), began: began, values: l.values + at*1000}
		all.Add(1)
		go func() {
			defer all.Done()
			for range l.units {
				if errs[at] = c.unit(); errs[at] != nil {
					break
				}
				if l.pause > 0 {
					time.Sleep(time.Duration(c.rng.Int63n(int64(l.pause))))
				}
			}
			histories[at] = c.history
		}()
	}
	all.Wait()
	l.values = (l.values + clients*1000) % 1_000_000
	for at, err := range errs {
		if err != nil {
			return nil, fmt.Errorf("lane %s, client %d: %w", l.name, at, err)
		}
	}
	history := slices.Concat(histories[:]...)
	slices.SortFunc(history, func(x, y porcupine.Operation) int { return cmp.Compare(x.Call, y.Call) })
	return history, nil
}

// A client of a round.
type client struct {
	*lane
	index   int
	rng     *rand.Rand
	began   time.Time
	values  int
	history []porcupine.Operation
}

func (c *client) now() int64 { return int64(time.Since(c.began)) }

func (c *client) record(in *input, out string) {
	in.client, in.db = c.index, c.uses[c.index]
	c.history = append(c.history, porcupine.Operation{
		ClientId: c.index, Input: in, Call: in.called, Output: out, Return: in.answered,
	})
}

func (c *client) chance(percent int) bool { return c.rng.Intn(100) < percent }

// Calls and records one unit of its choice.
func (c *client) unit() error {
	switch {
	case c.chance(c.blocking):
		if c.index == clients-1 {
			return c.dieWaiting()
		}
		return c.block()
	case c.blocking > 0 && c.chance(8):
		return c.unblock()
	case c.blocking > 0 && c.chance(20):
		return c.see()
	case c.chance(c.swaps):
		return c.plain(single, c.swapCall())
	case c.chance(c.watches):
		return c.optimistic()
	case c.chance(c.several):
		return c.plain(several, c.calls()...)
	}
	return c.plain(single, c.command())
}

// One command, or several by EXEC or by a script.
func (c *client) plain(k kind, calls ...[]string) error {
	in := &input{kind: k, calls: calls}
	wire := c.onServer(calls)
	switch {
	case k == single:
	case k == several && c.chance(40):
		words, _ := json.Marshal(wire)
		call := []string{"EVAL", script, "0", string(words)}
		if c.chance(50) {
			// With its keys declared.
			call = append([]string{"EVAL", script, strconv.Itoa(keyCount)}, keyNames[:]...)
			call = append(call, string(words))
		}
		wire = [][]string{call}
	default:
		wire = append(append([][]string{{"MULTI"}}, wire...), []string{"EXEC"})
	}
	in.called = c.now()
	out, err := c.conns[c.index].call(wire...)
	in.answered = c.now()
	c.record(in, out)
	return err
}

// The calls as the server knows its databases.
func (c *client) onServer(calls [][]string) [][]string {
	wire := slices.Clone(calls)
	for at, call := range wire {
		if call[0] == "SWAPDB" {
			wire[at] = []string{"SWAPDB", strconv.Itoa(c.dbs[0]), strconv.Itoa(c.dbs[1])}
		}
	}
	return wire
}

// WATCH, a look, and a transaction that holds only if nothing has changed.
func (c *client) optimistic() error {
	names := []string{keyNames[c.dataKey()]}
	if c.chance(30) {
		names = append(names, keyNames[c.dataKey()])
	}
	in := &input{kind: watching, calls: [][]string{append([]string{"WATCH"}, names...)}}
	in.called = c.now()
	out, err := c.conns[c.index].call(in.calls...)
	in.answered = c.now()
	c.record(in, out)
	if err != nil {
		return err
	}
	if key := keyOf(names[0]); key < keyL {
		if err := c.plain(single, []string{"GET", names[0]}); err != nil {
			return err
		}
		return c.plain(watched, []string{"SET", names[0], c.fresh()}, []string{"MGET", "a", "b"})
	}
	return c.plain(watched, []string{"RPUSH", names[0], c.fresh()}, []string{"LLEN", names[0]})
}

// A blocking call, in two halves.
func (c *client) block() error {
	call := c.blockingCall(strconv.FormatFloat(0.005+c.rng.Float64()*0.04, 'f', 3, 64))
	called := c.now()
	out, err := c.conns[c.index].call(call)
	c.recordBlocked(call, called, out)
	return err
}

func (c *client) recordBlocked(call []string, called int64, out string) {
	answered := c.now()
	for _, k := range []kind{begins, ends} {
		c.record(&input{kind: k, calls: [][]string{call}, called: called, answered: answered}, out)
	}
}

// A blocking call without a timeout, on a connection of its own that is killed. Once CLIENT KILL has answered, nothing
// may be popped for it.
func (c *client) dieWaiting() error {
	mortal, id, err := c.connect(c.uses[c.index])
	if err != nil {
		return err
	}
	defer mortal.Close()
	call := c.blockingCall("0")
	called := c.now()
	if err := mortal.send(call); err != nil {
		return err
	}
	time.Sleep(time.Duration(c.rng.Int63n(int64(8 * time.Millisecond))))
	killed, err := c.conns[c.index].call([]string{"CLIENT", "KILL", "ID", id})
	if err == nil && killed != ":1" {
		err = fmt.Errorf("CLIENT KILL answered %s", killed)
	}
	if err != nil {
		return err
	}
	// It may have been served before.
	out, err := mortal.read()
	if err != nil {
		out = unseen
	}
	c.recordBlocked(call, called, out)
	return nil
}

func (c *client) unblock() error {
	target := c.rng.Intn(clients - 1)
	in := &input{kind: unblocks, target: target, calls: [][]string{{"CLIENT", "UNBLOCK", strconv.Itoa(target)}}}
	in.called = c.now()
	out, err := c.conns[c.index].call([]string{"CLIENT", "UNBLOCK", c.ids[target]})
	in.answered = c.now()
	c.record(in, out)
	return err
}

func (c *client) see() error {
	target := c.rng.Intn(clients - 1)
	in := &input{kind: sees, target: target, calls: [][]string{{"CLIENT", "LIST", strconv.Itoa(target)}}}
	in.called = c.now()
	out, err := c.conns[c.index].call([]string{"CLIENT", "LIST", "ID", c.ids[target]})
	in.answered = c.now()
	c.record(in, flag(strings.Contains(out, " flags=b ")))
	return err
}

func (c *client) blockingCall(timeout string) []string {
	l, m := keyNames[keyL], keyNames[keyM]
	if c.chance(50) {
		l, m = m, l
	}
	switch c.rng.Intn(4) {
	case 0:
		return []string{"BLMOVE", l, m, c.side(), c.side(), timeout}
	case 1:
		return []string{"BLPOP", l, m, timeout}
	case 2:
		return []string{"BRPOP", l, timeout}
	}
	return []string{"BLPOP", l, timeout}
}

// The commands of a transaction or a script.
func (c *client) calls() [][]string {
	var calls [][]string
	swapped := c.chance(c.swaps)
	for range 1 + c.rng.Intn(4) {
		switch {
		case swapped:
			// Without keys that expire: which of the two databases they are in is decided once.
			calls = append(calls, c.stringCommand(keyA))
		case c.blocking > 0 && c.chance(15):
			calls = append(calls, c.blockingCall("0"))
		default:
			calls = append(calls, c.command())
		}
	}
	if swapped {
		calls = append(calls, c.swapCall())
	}
	return calls
}

func (c *client) swapCall() []string { return []string{"SWAPDB", "0", "1"} }

func (c *client) dataKey() int {
	if c.chance(c.lists) {
		return keyL + c.rng.Intn(2)
	}
	return keyA + c.rng.Intn(2)
}

func (c *client) command() []string {
	if c.chance(c.expiring) {
		return c.expiringCommand()
	}
	if key := c.dataKey(); key >= keyL {
		return c.listCommand(key)
	}
	return c.stringCommand(keyA + c.rng.Intn(2))
}

func (c *client) stringCommand(key int) []string {
	name := keyNames[key]
	switch c.rng.Intn(10) {
	case 0, 1, 2:
		return []string{"GET", name}
	case 3, 4:
		return []string{"SET", name, c.fresh()}
	case 5:
		return []string{"INCR", name}
	case 6:
		return []string{"APPEND", name, string(rune('a' + c.rng.Intn(3)))}
	case 7:
		return []string{"MGET", "a", "b"}
	case 8:
		return []string{"MSET", "a", c.fresh(), "b", c.fresh()}
	}
	return []string{c.oneOf("DEL", "GETDEL", "STRLEN", "EXISTS"), name}
}

func (c *client) expiringCommand() []string {
	switch c.rng.Intn(24) {
	case 0, 1:
		return []string{"SET", "e", c.fresh(), "PX", strconv.Itoa(120 + c.rng.Intn(80))}
	case 2:
		return []string{"PEXPIRE", "e", strconv.Itoa(120 + c.rng.Intn(80))}
	case 3:
		return []string{c.oneOf("INCR", "PERSIST"), "e"}
	case 4, 5:
		return []string{"GETDEL", "e"}
	}
	return []string{c.oneOf("GET", "STRLEN", "EXISTS"), "e"}
}

func (c *client) listCommand(key int) []string {
	name := keyNames[key]
	switch c.rng.Intn(10) {
	case 0, 1, 2:
		call := []string{c.oneOf("LPUSH", "RPUSH"), name, c.fresh()}
		if c.chance(30) {
			call = append(call, c.fresh(), c.fresh())
		}
		return call
	case 3, 4:
		return []string{c.oneOf("LPOP", "RPOP"), name}
	case 5:
		return []string{"LLEN", name}
	case 6:
		return []string{"LMOVE", name, keyNames[keyL+c.rng.Intn(2)], c.side(), c.side()}
	case 7:
		return []string{"RENAME", "l", "m"}
	case 8:
		return []string{"DEL", name}
	}
	return []string{"LRANGE", name, "0", "-1"}
}

func (c *client) fresh() string {
	c.values++
	return strconv.Itoa(c.values)
}

func (c *client) oneOf(words ...string) string { return words[c.rng.Intn(len(words))] }
func (c *client) side() string                 { return c.oneOf("LEFT", "RIGHT") }
