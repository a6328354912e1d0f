// Uses go-redis's ClusterClient against a cluster that PORT names, and says what it got.
//
// go-cluster PORT PROTOCOL
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	ctx := context.Background()
	protocol, err := strconv.Atoi(os.Args[2])
	must(err)
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs:    []string{"127.0.0.1:" + os.Args[1]},
		Protocol: protocol,
		ReadOnly: true,
	})
	defer client.Close()
	var nodes atomic.Int32
	must(client.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		nodes.Add(1)
		return node.Ping(ctx).Err()
	}))
	fmt.Println("nodes", nodes.Load())
	sum := 0
	for number := range 200 {
		must(client.Set(ctx, fmt.Sprintf("go:%d", number), number, 0).Err())
	}
	for number := range 200 {
		got, err := client.Get(ctx, fmt.Sprintf("go:%d", number)).Int()
		must(err)
		sum += got
	}
	fmt.Println("sum", sum)
	pipe := client.Pipeline()
	for number := range 50 {
		pipe.Get(ctx, fmt.Sprintf("go:%d", number))
	}
	got, err := pipe.Exec(ctx)
	must(err)
	fmt.Println("pipeline", len(got))
	results, err := client.TxPipelined(ctx, func(tx redis.Pipeliner) error {
		tx.Incr(ctx, "{go}:n")
		tx.Incr(ctx, "{go}:n")
		return nil
	})
	must(err)
	fmt.Println("multi", results[1].(*redis.IntCmd).Val())
	slot, err := client.ClusterKeySlot(ctx, "go:1").Result()
	must(err)
	fmt.Println("slot", slot)
	deleted := int64(0)
	for number := range 200 {
		deleted += client.Del(ctx, fmt.Sprintf("go:%d", number)).Val()
	}
	fmt.Println("deleted", deleted)
	must(client.Del(ctx, "{go}:n").Err())
}
