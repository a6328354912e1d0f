// The sequential data store: what each command answers and changes when nothing else happens. It is written from what
// Redis documents, and shares nothing with the server.

package main

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strconv"
	"strings"
)

// The keys of a database. `a` and `b` are strings, `e` is a string that expires, `l` and `m` are lists.
const (
	keyA = iota
	keyB
	keyE
	keyL
	keyM
	keyCount
)

var keyNames = [keyCount]string{"a", "b", "e", "l", "m"}

func keyOf(name string) int { return slices.Index(keyNames[:], name) }

// A string or a list; neither if it does not exist. The slices are never written to.
type value struct {
	exists bool
	text   string
	items  []string
	// The span of time in which it expires: nanoseconds, 0 if it does not.
	dueFrom, dueTo int64
}

// A client that waits for a list.
type waiter struct {
	client, db int
	call       []string
}

// What a client watches, and whether that has changed.
type watch struct {
	active, touched bool
	db              int
	keys            [keyCount]bool
}

type state struct {
	dbs     [2][keyCount]value
	watches [clientsMax]watch
	// First come, first served.
	waiters []waiter
	// What clients got that waited, or would have: empty if nothing.
	served [clientsMax]string
}

const clientsMax = 8

func (s *state) clone() *state {
	next := *s
	return &next
}

func (s *state) equal(other *state) bool {
	for db := range s.dbs {
		for key := range s.dbs[db] {
			x, y := &s.dbs[db][key], &other.dbs[db][key]
			if x.exists != y.exists || x.text != y.text || x.dueFrom != y.dueFrom || x.dueTo != y.dueTo ||
				!slices.Equal(x.items, y.items) {
				return false
			}
		}
	}
	return s.watches == other.watches && s.served == other.served &&
		slices.EqualFunc(s.waiters, other.waiters, func(x, y waiter) bool { return x.client == y.client })
}

var hashSeed = maphash.MakeSeed()

func (s *state) hash() uint64 {
	var h maphash.Hash
	h.SetSeed(hashSeed)
	for db := range s.dbs {
		for key := range s.dbs[db] {
			h.WriteString(s.dbs[db][key].text)
			for _, item := range s.dbs[db][key].items {
				h.WriteString(item)
				h.WriteByte(' ')
			}
			h.WriteByte(0)
		}
	}
	for _, w := range s.waiters {
		h.WriteByte(byte(w.client))
	}
	for _, text := range s.served {
		h.WriteString(text)
		h.WriteByte(0)
	}
	return h.Sum64()
}

func (s *state) String() string {
	var out []string
	for db := range s.dbs {
		for key, v := range s.dbs[db] {
			if v.exists {
				out = append(out, fmt.Sprintf("%d.%s=%s%v", db, keyNames[key], v.text, v.items))
			}
		}
	}
	for _, w := range s.waiters {
		out = append(out, fmt.Sprintf("client %d waits: %v", w.client, w.call))
	}
	return strings.Join(out, "; ")
}

func (s *state) touch(db, key int) {
	for at := range s.watches {
		if w := &s.watches[at]; w.active && w.db == db && w.keys[key] {
			w.touched = true
		}
	}
}

func (s *state) set(db, key int, v value) {
	s.dbs[db][key] = v
	s.touch(db, key)
}

func (s *state) remove(db, key int) bool {
	existed := s.dbs[db][key].exists
	if existed {
		s.set(db, key, value{})
	}
	return existed
}

func (s *state) push(db, key int, left bool, items ...string) int {
	old := s.dbs[db][key].items
	list := make([]string, 0, len(old)+len(items))
	if left {
		for at := len(items) - 1; at >= 0; at-- {
			list = append(list, items[at])
		}
		list = append(list, old...)
	} else {
		list = append(append(list, old...), items...)
	}
	s.set(db, key, value{exists: true, items: list})
	return len(list)
}

func (s *state) pop(db, key int, left bool) (string, bool) {
	list := s.dbs[db][key].items
	if len(list) == 0 {
		return "", false
	}
	item, rest := list[0], list[1:]
	if !left {
		item, rest = list[len(list)-1], list[:len(list)-1]
	}
	s.set(db, key, value{exists: len(rest) > 0, items: rest})
	return item, true
}

func (s *state) move(db, from, to int, fromLeft, toLeft bool) (string, bool) {
	item, ok := s.pop(db, from, fromLeft)
	if ok {
		s.push(db, to, toLeft, item)
	}
	return item, ok
}

func (s *state) swap() {
	for key := range keyCount {
		if s.dbs[0][key].exists || s.dbs[1][key].exists {
			s.touch(0, key)
			s.touch(1, key)
		}
	}
	s.dbs[0], s.dbs[1] = s.dbs[1], s.dbs[0]
}

func integer(n int) string { return ":" + strconv.Itoa(n) }

func flag(b bool) string {
	if b {
		return ":1"
	}
	return ":0"
}

func bulk(text string, exists bool) string {
	if !exists {
		return "nil"
	}
	return "$" + text
}

const noInteger = "-ERR value is not an integer or out of range"

// Runs one command in a database, as part of a unit that was called and answered at these times.
func (s *state) run(db int, call []string, called, answered int64) string {
	key := -1
	if len(call) > 1 {
		key = keyOf(call[1])
	}
	var v value
	if key >= 0 {
		v = s.dbs[db][key]
	}
	switch call[0] {
	case "GET":
		return bulk(v.text, v.exists)
	case "SET":
		next := value{exists: true, text: call[2]}
		if len(call) == 5 {
			ms, _ := strconv.ParseInt(call[4], 10, 64)
			next.dueFrom, next.dueTo = called+ms*1e6, answered+ms*1e6
		}
		s.set(db, key, next)
		return "OK"
	case "PEXPIRE":
		if !v.exists {
			return ":0"
		}
		ms, _ := strconv.ParseInt(call[2], 10, 64)
		v.dueFrom, v.dueTo = called+ms*1e6, answered+ms*1e6
		s.set(db, key, v)
		return ":1"
	case "PERSIST":
		had := v.dueTo != 0
		if had {
			v.dueFrom, v.dueTo = 0, 0
			s.set(db, key, v)
		}
		return flag(had)
	case "APPEND":
		v.exists, v.text = true, v.text+call[2]
		s.set(db, key, v)
		return integer(len(v.text))
	case "STRLEN":
		return integer(len(v.text))
	case "INCR":
		n := int64(0)
		if v.exists {
			var err error
			n, err = strconv.ParseInt(v.text, 10, 64)
			if err != nil || strconv.FormatInt(n, 10) != v.text {
				return noInteger
			}
		}
		v.exists, v.text = true, strconv.FormatInt(n+1, 10)
		s.set(db, key, v)
		return ":" + v.text
	case "GETDEL":
		s.remove(db, key)
		return bulk(v.text, v.exists)
	case "DEL":
		return flag(s.remove(db, key))
	case "EXISTS":
		return flag(v.exists)
	case "MGET":
		var out []string
		for _, name := range call[1:] {
			v := s.dbs[db][keyOf(name)]
			out = append(out, bulk(v.text, v.exists))
		}
		return "[" + strings.Join(out, " ") + "]"
	case "MSET":
		for at := 1; at < len(call); at += 2 {
			s.set(db, keyOf(call[at]), value{exists: true, text: call[at+1]})
		}
		return "OK"
	case "LPUSH", "RPUSH":
		return integer(s.push(db, key, call[0] == "LPUSH", call[2:]...))
	case "LPOP", "RPOP":
		return bulk(s.pop(db, key, call[0] == "LPOP"))
	case "LLEN":
		return integer(len(v.items))
	case "LRANGE":
		var out []string
		for _, item := range v.items {
			out = append(out, "$"+item)
		}
		return "[" + strings.Join(out, " ") + "]"
	case "LMOVE", "BLMOVE":
		return bulk(s.move(db, key, keyOf(call[2]), call[3] == "LEFT", call[4] == "LEFT"))
	case "BLPOP", "BRPOP":
		for _, name := range call[1 : len(call)-1] {
			if item, ok := s.pop(db, keyOf(name), call[0] == "BLPOP"); ok {
				return "[$" + name + " $" + item + "]"
			}
		}
		return "nil"
	case "RENAME":
		if !v.exists {
			return "-ERR no such key"
		}
		s.remove(db, key)
		s.set(db, keyOf(call[2]), v)
		return "OK"
	case "SWAPDB":
		s.swap()
		return "OK"
	}
	panic("no such command in the model: " + call[0])
}

// The lists that a blocking call waits for.
func waitsFor(call []string) []string {
	if call[0] == "BLMOVE" {
		return call[1:2]
	}
	return call[1 : len(call)-1]
}

// At the end of a unit: whoever waits for a list that is there now gets what it waits for. The order of two lists that
// appeared at once is nobody's business, so every order leads to a state.
func (s *state) serve() []*state {
	var out []*state
	for db := range s.dbs {
		for _, key := range []int{keyL, keyM} {
			if !s.dbs[db][key].exists {
				continue
			}
			next := s.clone()
			if next.serveKey(db, key) {
				out = append(out, next.serve()...)
			}
		}
	}
	if len(out) == 0 {
		out = append(out, s)
	}
	return out
}

// Serves those who wait for a key; was there any?
func (s *state) serveKey(db, key int) bool {
	var left []waiter
	any := false
	for _, w := range s.waiters {
		if w.db != db || !s.dbs[db][key].exists || !slices.Contains(waitsFor(w.call), keyNames[key]) {
			left = append(left, w)
			continue
		}
		s.served[w.client] = s.run(db, w.call, 0, 0)
		any = true
	}
	s.waiters = left
	return any
}
