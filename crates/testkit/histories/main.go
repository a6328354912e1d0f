// Many clients call a server at the same time; Porcupine then says whether what each of them was answered can be
// explained by one order of atomic units.
//
//	histories ADDRESS SECONDS SEED          checks the server
//	histories ADDRESS SECONDS SEED FAULTS   puts a faulty proxy in front of it, and wants each fault to be found
package main

import (
	"fmt"
	"math/rand"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// A history that takes longer to decide fails the run.
const checkTimeout = 20 * time.Second

func main() {
	if len(os.Args) < 4 {
		fmt.Fprintln(os.Stderr, "histories ADDRESS SECONDS SEED [FAULTS]")
		os.Exit(2)
	}
	address := os.Args[1]
	seconds, err := strconv.ParseFloat(os.Args[2], 64)
	seed, seedErr := strconv.ParseInt(os.Args[3], 10, 64)
	if err == nil {
		err = seedErr
	}
	limit := time.Duration(seconds * float64(time.Second))
	if err == nil {
		if len(os.Args) > 4 {
			err = findFaults(address, limit, seed)
		} else {
			err = checkServer(address, limit, seed)
		}
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// What was checked.
type tally struct {
	histories, units int
	slowest          time.Duration
}

func checkServer(address string, limit time.Duration, seed int64) error {
	tallies, err := checkLanes(address, flavours, limit, seed)
	if err != nil {
		return err
	}
	for at, t := range tallies {
		if t.histories == 0 {
			return fmt.Errorf("%s: no history in %v", flavours[at].name, limit)
		}
		fmt.Printf("%s: %d histories, %d units, the slowest check took %v\n",
			flavours[at].name, t.histories, t.units, t.slowest.Round(time.Millisecond))
	}
	return nil
}

// Runs rounds of all flavours at once, until the time is over or one of them is wrong.
func checkLanes(address string, flavours []flavour, limit time.Duration, seed int64) ([]tally, error) {
	rng := rand.New(rand.NewSource(seed))
	tallies := make([]tally, len(flavours))
	errs := make([]error, len(flavours))
	deadline := time.Now().Add(limit)
	var all sync.WaitGroup
	var failed sync.Once
	over := make(chan struct{})
	for at, f := range flavours {
		l, err := newLane(address, f, at*2, rng.Int63())
		if err != nil {
			return nil, err
		}
		defer l.close()
		all.Add(1)
		go func() {
			defer all.Done()
			for time.Now().Before(deadline) {
				select {
				case <-over:
					return
				default:
				}
				if errs[at] = l.check(&tallies[at]); errs[at] != nil {
					failed.Do(func() { close(over) })
					return
				}
			}
		}()
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return tallies, err
		}
	}
	return tallies, nil
}

// A history that no order of units explains.
type contradiction struct{ text string }

func (c contradiction) Error() string { return c.text }

// One round and its check.
func (l *lane) check(t *tally) error {
	history, err := l.round()
	if err != nil {
		return err
	}
	began := time.Now()
	m := model()
	result := porcupine.CheckOperationsTimeout(m, history, checkTimeout)
	t.histories++
	t.units += len(history)
	t.slowest = max(t.slowest, time.Since(began))
	switch result {
	case porcupine.Ok:
		return nil
	case porcupine.Unknown:
		return fmt.Errorf("%s: %d units, not decided in %v", l.name, len(history), checkTimeout)
	}
	text := fmt.Sprintf("%s: no order of units explains this history (client: from to, in us)\n", l.name)
	for _, op := range history {
		text += fmt.Sprintf("  %d: %7d %7d  %s\n", op.ClientId, op.Call/1000, op.Return/1000, m.DescribeOperation(op.Input, op.Output))
	}
	return contradiction{text}
}
