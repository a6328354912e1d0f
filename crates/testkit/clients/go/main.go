// Runs the calls of calls.txt through go-redis, and what go-redis offers beyond single calls.
//
// go-client PORT PROTOCOL CALLS
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

var ctx = context.Background()

func wordsOf(line string) []any {
	var words []any
	for at, part := range strings.Split(line, `"`) {
		if at%2 == 1 {
			words = append(words, unquoted(part))
			continue
		}
		for _, word := range strings.Fields(part) {
			words = append(words, word)
		}
	}
	return words
}

// A quoted word without its escapes.
func unquoted(word string) string {
	parts := strings.Split(strings.ReplaceAll(word, `\n`, "\n"), `\x`)
	for at, part := range parts[1:] {
		code, err := strconv.ParseUint(part[:2], 16, 8)
		if err != nil {
			panic(err)
		}
		parts[at+1] = string([]byte{byte(code)}) + part[2:]
	}
	return strings.Join(parts, "")
}

func text(value any, mark string) string {
	switch v := value.(type) {
	case error:
		return "error " + v.Error()
	case map[any]any:
		if mark == "~" {
			return "map"
		}
		var pairs []string
		for key, value := range v {
			pairs = append(pairs, text(key, "")+": "+text(value, ""))
		}
		sort.Strings(pairs)
		return "map[" + strings.Join(pairs, ", ") + "]"
	case []any:
		if mark == "~" {
			return "list"
		}
		var elements []string
		for _, element := range v {
			elements = append(elements, text(element, ""))
		}
		if mark == "?" {
			sort.Strings(elements)
		}
		return "[" + strings.Join(elements, ", ") + "]"
	}
	if mark == "~" {
		return fmt.Sprintf("%T", value)
	}
	return fmt.Sprintf("%T %#v", value, value)
}

func calls(client *redis.Client, path string) error {
	connection := client.Conn()
	defer connection.Close()
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		mark := ""
		if strings.ContainsAny(line[:1], "~?") {
			mark = line[:1]
		}
		value, err := connection.Do(ctx, wordsOf(line[len(mark):])...).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			var reply redis.Error
			if !errors.As(err, &reply) {
				return fmt.Errorf("%s: %w", line, err)
			}
			fmt.Println(line, "->", text(err, ""))
			continue
		}
		fmt.Println(line, "->", text(value, mark))
	}
	return nil
}

func library(client *redis.Client) error {
	var results []string
	commands, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.Set(ctx, "p", 1, 0)
		p.Incr(ctx, "p")
		p.HSet(ctx, "h", "a", 1)
		p.HGetAll(ctx, "h")
		p.ZAdd(ctx, "z", redis.Z{Score: 1.5, Member: "m"})
		p.ZRangeWithScores(ctx, "z", 0, -1)
		p.XAdd(ctx, &redis.XAddArgs{Stream: "x", ID: "1-1", Values: []string{"f", "v"}})
		p.XRange(ctx, "x", "-", "+")
		return nil
	})
	if err != nil {
		return err
	}
	for _, command := range commands {
		results = append(results, command.String())
	}
	fmt.Println("pipeline", results)
	var group sync.WaitGroup
	for range 3 {
		group.Add(1)
		go func() {
			defer group.Done()
			for range 10 {
				increment := func(tx *redis.Tx) error {
					n, err := tx.Get(ctx, "counter").Int()
					if err != nil && !errors.Is(err, redis.Nil) {
						return err
					}
					_, err = tx.TxPipelined(ctx, func(p redis.Pipeliner) error {
						return p.Set(ctx, "counter", n+1, 0).Err()
					})
					return err
				}
				for client.Watch(ctx, increment, "counter") != nil {
				}
			}
		}()
	}
	group.Wait()
	fmt.Println("optimistic", client.Get(ctx, "counter").Val())
	script := redis.NewScript("return redis.call('incrby', KEYS[1], ARGV[1])")
	fmt.Println("script", script.Run(ctx, client, []string{"sc"}, 5).Val(), script.Run(ctx, client, []string{"sc"}, 5).Val())
	for i := range 300 {
		client.Set(ctx, "it:"+strconv.Itoa(i), i, 0)
	}
	seen := map[string]bool{}
	for keys := client.Scan(ctx, 0, "it:*", 20).Iterator(); keys.Next(ctx); {
		seen[keys.Val()] = true
	}
	fmt.Println("scan", len(seen))
	subscription := client.Subscribe(ctx, "news")
	defer subscription.Close()
	if _, err := subscription.Receive(ctx); err != nil {
		return err
	}
	if err := subscription.PSubscribe(ctx, "ne*"); err != nil {
		return err
	}
	if _, err := subscription.Receive(ctx); err != nil {
		return err
	}
	fmt.Println("publish", client.Publish(ctx, "news", "hello").Val())
	for range 2 {
		message, err := subscription.ReceiveMessage(ctx)
		if err != nil {
			return err
		}
		fmt.Println("message", message)
	}
	infos, err := client.Command(ctx).Result()
	if err != nil {
		return err
	}
	fmt.Println("command", len(infos) > 100, infos["get"].Arity, infos["get"].ReadOnly)
	fmt.Println("info", len(client.InfoMap(ctx, "server", "memory").Val()))
	return nil
}

// MONITOR of what another connection sends, without times and addresses.
func monitor(client *redis.Client) error {
	connection := client.Conn()
	defer connection.Close()
	if err := connection.Ping(ctx).Err(); err != nil {
		return err
	}
	options := *client.Options()
	// go-redis reads on in the background: neither a timeout nor the pool's look at the connection may come in between.
	options.ReadTimeout = -1
	observer := redis.NewClient(&options)
	lines := make(chan string, 16)
	session := observer.Conn().Monitor(ctx, lines)
	if err := session.Err(); err != nil {
		return err
	}
	session.Start()
	fmt.Println("monitor", <-lines)
	connection.Set(ctx, "m", "a \x00b\r\n", 0)
	connection.Eval(ctx, "return redis.call('incr', KEYS[1])", []string{"mn"})
	_, err := connection.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.Incr(ctx, "mn")
		p.LPush(ctx, "ml", "x")
		return nil
	})
	if err != nil {
		return err
	}
	prefix := regexp.MustCompile(`^[\d.]+ \[(\d+) (lua)?.*?\]`)
	for range 7 {
		fmt.Println("monitor", prefix.ReplaceAllString(<-lines, "$1 $2"))
	}
	// Its goroutine holds a lock while it waits for a line, and so has to lose the connection first.
	err = observer.Close()
	session.Stop()
	return err
}

func run() error {
	if len(os.Args) != 4 {
		return errors.New("go-client PORT PROTOCOL CALLS")
	}
	protocol, err := strconv.Atoi(os.Args[2])
	if err != nil {
		return err
	}
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + os.Args[1], Protocol: protocol, MaxRetries: -1})
	defer client.Close()
	if err := calls(client, os.Args[3]); err != nil {
		return err
	}
	if err := client.FlushAll(ctx).Err(); err != nil {
		return err
	}
	if err := library(client); err != nil {
		return err
	}
	if os.Getenv("MONITOR") == "no" {
		return nil
	}
	return monitor(client)
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
