// The specification that Porcupine holds a history against: units, each of them atomic.
//
// A unit is one command, one EXEC, one script. A blocking call is two units: it *begins* (it takes what is there, or
// queues up behind those who wait already), and it *ends* with what it got meanwhile, or with nothing when its time is
// over and it still waits. So an element goes to whoever waits in the same unit that pushed it, and a wake-up that is
// lost contradicts the history. That who comes first is served first shows only where somebody has *seen* it wait before
// the next one came: by CLIENT LIST.

package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

type kind int

const (
	// One command.
	single kind = iota
	// MULTI … EXEC, or a script: all of the commands, and the array of their replies.
	several
	// WATCH of a client.
	watching
	// EXEC of a client that watches: as `several`, or nil if what it watches has changed.
	watched
	// The two halves of a blocking call.
	begins
	ends
	// CLIENT UNBLOCK of another client.
	unblocks
	// CLIENT LIST of another client: does it wait?
	sees
)

var kindNames = []string{"", "unit", "watch", "watched unit", "begin", "end", "unblock", "see"}

type input struct {
	kind   kind
	client int
	db     int
	calls  [][]string
	// Whom it is about, if it is about another client.
	target int
	// In nanoseconds since the run began.
	called, answered int64
}

// The reply of a client that was killed while it waited: nobody has seen it.
const unseen = "unseen"

// How much the server's clock may be behind, since it is read once per turn of a loop and the machine is busy: a key
// may expire that much too early, or be seen that much too late.
const (
	earlySlack = int64(100 * time.Millisecond)
	lateSlack  = int64(250 * time.Millisecond)
)

func model() porcupine.Model {
	nondeterministic := porcupine.NondeterministicModel{
		Init: func() []any { return []any{&state{}} },
		Step: func(s, in, out any) []any {
			var states []any
			for _, s := range expired(s.(*state), in.(*input)) {
				for _, next := range step(s, in.(*input), out.(string)) {
					states = append(states, next)
				}
			}
			return states
		},
		Equal: func(x, y any) bool { return x.(*state).equal(y.(*state)) },
		Hash:  func(s any) uint64 { return s.(*state).hash() },
		DescribeOperation: func(in, out any) string {
			i := in.(*input)
			return fmt.Sprintf("db %d %s %v -> %s", i.db, kindNames[i.kind], i.calls, out)
		},
		DescribeState: func(s any) string { return s.(*state).String() },
	}
	return nondeterministic.ToModel()
}

// What the state may be when the unit runs, as to keys whose time may be over. A unit that does not touch such a key
// decides nothing.
func expired(s *state, in *input) []*state {
	states := []*state{s}
	for db := range s.dbs {
		v := &s.dbs[db][keyE]
		if !v.exists || v.dueTo == 0 || !in.names(keyNames[keyE]) || in.db != db {
			continue
		}
		mayLive := in.called <= v.dueTo+lateSlack
		mayExpire := in.answered >= v.dueFrom-earlySlack
		if !mayExpire {
			continue
		}
		gone := s.clone()
		gone.dbs[db][keyE] = value{}
		if mayLive {
			states = append(states, gone)
		} else {
			states = []*state{gone}
		}
	}
	return states
}

func (in *input) names(key string) bool {
	return slices.ContainsFunc(in.calls, func(call []string) bool { return slices.Contains(call[1:], key) })
}

// The states after a unit that gave this answer: none if it cannot have been given.
func step(s *state, in *input, out string) []*state {
	next := s.clone()
	switch in.kind {
	case single:
		if next.run(in.db, in.calls[0], in.called, in.answered) != out {
			return nil
		}
	case watched, several:
		if in.kind == watched {
			touched := next.watches[in.client].touched
			next.watches[in.client] = watch{}
			if touched {
				if out != "nil" {
					return nil
				}
				return []*state{next}
			}
		}
		var replies []string
		for _, call := range in.calls {
			replies = append(replies, next.run(in.db, call, in.called, in.answered))
		}
		if "["+strings.Join(replies, " ")+"]" != out {
			return nil
		}
	case watching:
		w := &next.watches[in.client]
		w.active, w.db = true, in.db
		for _, name := range in.calls[0][1:] {
			w.keys[keyOf(name)] = true
		}
	case begins:
		var states []*state
		if out == unseen {
			// It may have been killed before it was heard.
			unheard := s.clone()
			unheard.served[in.client] = unseen
			states = append(states, unheard)
		}
		if reply := next.run(in.db, in.calls[0], in.called, in.answered); reply != "nil" {
			next.served[in.client] = reply
		} else {
			next.waiters = append(slices.Clone(next.waiters), waiter{in.client, in.db, in.calls[0]})
		}
		return append(states, next.serve()...)
	case ends:
		got := next.served[in.client]
		if got == "" {
			if !next.leave(in.client) {
				return nil
			}
			got = "nil"
		}
		next.served[in.client] = ""
		if got != out && out != unseen {
			return nil
		}
	case sees:
		// It may still be listed as waiting when it has been served already.
		waits := slices.ContainsFunc(next.waiters, func(w waiter) bool { return w.client == in.target })
		if out == ":1" && !waits && next.served[in.target] == "" {
			return nil
		}
	case unblocks:
		if flag(next.leave(in.target)) != out {
			return nil
		}
		if out == ":1" {
			next.served[in.target] = "nil"
		}
	}
	return next.serve()
}

// Takes a client out of those who wait; was it there?
func (s *state) leave(client int) bool {
	at := slices.IndexFunc(s.waiters, func(w waiter) bool { return w.client == client })
	if at < 0 {
		return false
	}
	s.waiters = slices.Delete(slices.Clone(s.waiters), at, at+1)
	return true
}
