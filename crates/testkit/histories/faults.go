// Planted faults: a proxy between the clients and the server that does one thing wrong, as a faulty server would.
// A checker that does not find each of them is worth nothing.

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"net"
	"strings"
	"sync"
	"time"
)

type fault struct {
	name string
	// The flavour of histories that must show it.
	flavour string
	// Says what becomes of a call: the replies as the wire has them. It may call `forward` as often as it likes.
	handle func(p *proxy, call []string, forward func(calls ...[]string) string) string
}

var faults = []fault{
	{"EXEC is not atomic: its commands run one by one", "strings", torn},
	{"GET answers what was there up to 2 ms ago", "strings", stale},
	{"INCR and APPEND are done twice, now and then", "strings", twice},
	{"SET is acknowledged before it is done", "strings", early},
	{"WATCH watches nothing", "strings", blind},
	{"what BLPOP has popped is lost, now and then", "lists", lost},
	{"SWAPDB does nothing, now and then", "everything", unswapped},
	{"keys that are to expire stay", "expiry", undead},
}

// Each fault has this part of the time.
func findFaults(address string, limit time.Duration, seed int64) error {
	for at, f := range faults {
		began := time.Now()
		p := &proxy{server: address, fault: f, rng: rand.New(rand.NewSource(seed + int64(at)))}
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		go p.accept(listener)
		var lanes []flavour
		for _, flavour := range flavours {
			if flavour.name == f.flavour {
				lanes = append(lanes, flavour)
			}
		}
		tallies, err := checkLanes(listener.Addr().String(), lanes, limit, seed)
		listener.Close()
		var found contradiction
		if err == nil {
			return fmt.Errorf("planted fault not found in %v: %s", limit, f.name)
		}
		if !errors.As(err, &found) {
			return fmt.Errorf("planted fault, %s: %w", f.name, err)
		}
		histories := 0
		for _, t := range tallies {
			histories += t.histories
		}
		fmt.Printf("found after %d histories, %v: %s\n",
			histories, time.Since(began).Round(time.Millisecond), f.name)
	}
	return nil
}

type proxy struct {
	server string
	fault
	mutex sync.Mutex
	rng   *rand.Rand
	// Of `stale`.
	cached   string
	cachedAt time.Time
}

func (p *proxy) chance(percent int) bool {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.rng.Intn(100) < percent
}

func (p *proxy) accept(listener net.Listener) {
	for {
		c, err := listener.Accept()
		if err != nil {
			return
		}
		go p.serve(c)
	}
}

// One client: a call at a time, but for what waits in MULTI.
func (p *proxy) serve(c net.Conn) {
	defer c.Close()
	up, err := dial(p.server)
	if err != nil {
		return
	}
	defer up.Close()
	in := bufio.NewReader(c)
	forward := func(calls ...[]string) string {
		if up.send(calls...) != nil {
			return ""
		}
		var out strings.Builder
		for range calls {
			if copyReply(up.in, &out) != nil {
				return ""
			}
		}
		return out.String()
	}
	var queue [][]string
	queuing := false
	for {
		call, err := readRequest(in)
		if err != nil {
			return
		}
		var reply string
		switch {
		case call[0] == "MULTI":
			queuing, reply = true, "+OK\r\n"
		case call[0] == "EXEC":
			reply = p.exec(queue, forward)
			queuing, queue = false, nil
		case queuing:
			queue, reply = append(queue, call), "+QUEUED\r\n"
		default:
			reply = p.handle(p, call, forward)
		}
		if _, err := io.WriteString(c, reply); err != nil || reply == "" {
			return
		}
	}
}

// A transaction, as a whole unless that is what is wrong.
func (p *proxy) exec(queue [][]string, forward func(calls ...[]string) string) string {
	if reply := p.handle(p, []string{"EXEC"}, func(...[]string) string { return "" }); reply != "" {
		out := fmt.Sprintf("*%d\r\n", len(queue))
		for _, call := range queue {
			out += forward(call)
			time.Sleep(time.Millisecond)
		}
		return out
	}
	calls := append(append([][]string{{"MULTI"}}, queue...), []string{"EXEC"})
	reply := forward(calls...)
	for range len(queue) + 1 {
		_, reply, _ = strings.Cut(reply, "\r\n")
	}
	return reply
}

func torn(_ *proxy, call []string, forward func(calls ...[]string) string) string {
	if call[0] == "EXEC" {
		return "torn"
	}
	return forward(call)
}

func stale(p *proxy, call []string, forward func(calls ...[]string) string) string {
	if call[0] != "GET" || call[1] != keyNames[keyA] {
		return forward(call)
	}
	p.mutex.Lock()
	cached, at := p.cached, p.cachedAt
	p.mutex.Unlock()
	if time.Since(at) < 2*time.Millisecond {
		return cached
	}
	reply := forward(call)
	p.mutex.Lock()
	p.cached, p.cachedAt = reply, time.Now()
	p.mutex.Unlock()
	return reply
}

func twice(p *proxy, call []string, forward func(calls ...[]string) string) string {
	if (call[0] == "INCR" || call[0] == "APPEND") && p.chance(20) {
		forward(call)
	}
	return forward(call)
}

func early(p *proxy, call []string, forward func(calls ...[]string) string) string {
	if call[0] != "SET" {
		return forward(call)
	}
	// By a connection of its own, in the database that the only lane of this flavour uses.
	go func() {
		time.Sleep(time.Millisecond)
		if up, err := dial(p.server); err == nil {
			up.call(call)
			up.Close()
		}
	}()
	return "+OK\r\n"
}

func blind(_ *proxy, call []string, forward func(calls ...[]string) string) string {
	if call[0] == "WATCH" {
		return "+OK\r\n"
	}
	return forward(call)
}

func lost(p *proxy, call []string, forward func(calls ...[]string) string) string {
	reply := forward(call)
	if call[0] == "BLPOP" && strings.HasPrefix(reply, "*2") && p.chance(20) {
		return "*-1\r\n"
	}
	return reply
}

func unswapped(p *proxy, call []string, forward func(calls ...[]string) string) string {
	if call[0] == "SWAPDB" && p.chance(50) {
		return "+OK\r\n"
	}
	return forward(call)
}

func undead(_ *proxy, call []string, forward func(calls ...[]string) string) string {
	if call[0] == "SET" && len(call) == 5 {
		return forward([]string{"SET", call[1], call[2], "PX", "60000"})
	}
	if call[0] == "PEXPIRE" {
		return forward([]string{"PEXPIRE", call[1], "60000"})
	}
	return forward(call)
}

// Copies one reply as the wire has it.
func copyReply(in *bufio.Reader, out *strings.Builder) error {
	line, err := in.ReadString('\n')
	if err != nil {
		return err
	}
	out.WriteString(line)
	if line[0] != '$' && line[0] != '*' {
		return nil
	}
	var count int
	if _, err := fmt.Sscan(line[1:], &count); err != nil || count < 0 {
		return err
	}
	if line[0] == '$' {
		_, err := io.CopyN(out, in, int64(count)+2)
		return err
	}
	for range count {
		if err := copyReply(in, out); err != nil {
			return err
		}
	}
	return nil
}
