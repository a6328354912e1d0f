// One connection: calls go out, replies come back as one line of text each. Knows nothing of what they mean.

package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// No call of a history takes as long as this: a reply that is missing fails the run.
const replyTimeout = 20 * time.Second

type conn struct {
	net.Conn
	in *bufio.Reader
}

func dial(address string) (*conn, error) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	return &conn{c, bufio.NewReader(c)}, nil
}

func encode(calls ...[]string) []byte {
	var out []byte
	for _, call := range calls {
		out = fmt.Appendf(out, "*%d\r\n", len(call))
		for _, word := range call {
			out = fmt.Appendf(out, "$%d\r\n%s\r\n", len(word), word)
		}
	}
	return out
}

// Sends the calls in one write.
func (c *conn) send(calls ...[]string) error {
	_, err := c.Write(encode(calls...))
	return err
}

// Sends the calls in one write and returns the last reply.
func (c *conn) call(calls ...[]string) (string, error) {
	if err := c.send(calls...); err != nil {
		return "", err
	}
	var reply string
	var err error
	for range calls {
		if reply, err = c.read(); err != nil {
			return "", err
		}
	}
	return reply, nil
}

// The next reply: `OK`, `-text`, `:5`, `$text`, `nil`, `[a b]`.
func (c *conn) read() (string, error) {
	c.SetReadDeadline(time.Now().Add(replyTimeout))
	return readReply(c.in)
}

func readReply(in *bufio.Reader) (string, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimSuffix(line, "\r\n")
	switch line[0] {
	case '+':
		return line[1:], nil
	case '-', ':':
		return line, nil
	case '$', '*':
		count, err := strconv.Atoi(line[1:])
		if err != nil {
			return "", err
		}
		if count < 0 {
			return "nil", nil
		}
		if line[0] == '$' {
			text := make([]byte, count+2)
			_, err := io.ReadFull(in, text)
			return "$" + string(text[:count]), err
		}
		parts := make([]string, count)
		for at := range parts {
			if parts[at], err = readReply(in); err != nil {
				return "", err
			}
		}
		return "[" + strings.Join(parts, " ") + "]", nil
	}
	return "", fmt.Errorf("no reply: %q", line)
}

// The next request, as a proxy reads it.
func readRequest(in *bufio.Reader) ([]string, error) {
	count, err := readCount(in)
	if err != nil {
		return nil, err
	}
	words := make([]string, count)
	for at := range words {
		length, err := readCount(in)
		if err != nil {
			return nil, err
		}
		word := make([]byte, length+2)
		if _, err := io.ReadFull(in, word); err != nil {
			return nil, err
		}
		words[at] = string(word[:length])
	}
	return words, nil
}

func readCount(in *bufio.Reader) (int, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(line[1:]))
}
