// Google's Bigtable server in memory (bttest), with what the tests need beside it: a lock around every call, descending
// reads, long values in pieces, and faults. It prints its address.
//
//	GO111MODULE=off GOPATH=/usr/share/gocode go build -o emulator .
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand"
	"os"
	"strings"
	"sync"
	"time"

	"cloud.google.com/go/bigtable/bttest"
	btpb "google.golang.org/genproto/googleapis/bigtable/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A value that is longer comes in pieces of this size, each in a message of its own, as Bigtable does it.
const pieceBytes = 64 << 10

// A message that is larger is refused: Bigtable's own bound is near.
const messageBytes = 256 << 20

var (
	addr   = flag.String("addr", "127.0.0.1:0", "where to listen")
	stdin  = flag.Bool("stdin", false, "end when the standard input ends, as it does when the parent is killed")
	delay  = flag.Duration("delay", 0, "before every call")
	before = flag.Float64("fail-before", 0, "share of the calls that are not done and answered UNAVAILABLE")
	after  = flag.Float64("fail-after", 0, "share that is done and answered UNAVAILABLE; streams break off somewhere")
	refuse = flag.Bool("refuse-changes", false, "refuse CheckAndMutateRow, as with an app profile that routes to any cluster")
	late   = flag.Float64("late", 0, "share that is answered DEADLINE_EXCEEDED and done 200 ms later; not of streams")
)

// bttest shares the names of columns between a row and its copies, so that a read beside a write of the same row would
// miss columns or have them twice.
var mu sync.Mutex

func chance(p float64) bool { return rand.Float64() < p }

func isData(method string) bool { return strings.HasPrefix(method, "/google.bigtable.v2.") }

func unary(ctx context.Context, req interface{}, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (interface{}, error) {
	time.Sleep(*delay)
	if *refuse && strings.HasSuffix(info.FullMethod, "/CheckAndMutateRow") {
		return nil, status.Error(codes.FailedPrecondition, "Single-row transactions are not allowed by this app profile")
	}
	faulty := isData(info.FullMethod)
	if faulty && chance(*before) {
		return nil, status.Error(codes.Unavailable, "not done")
	}
	do := func(ctx context.Context) (interface{}, error) {
		mu.Lock()
		defer mu.Unlock()
		return handler(ctx, req)
	}
	if faulty && chance(*late) {
		time.AfterFunc(200*time.Millisecond, func() { _, _ = do(context.Background()) })
		return nil, status.Error(codes.DeadlineExceeded, "done later")
	}
	res, err := do(ctx)
	if faulty && err == nil && chance(*after) {
		return nil, status.Error(codes.Unavailable, "done")
	}
	return res, err
}

// collector keeps what a handler sends, so that the lock is not held while a slow client reads.
type collector struct {
	grpc.ServerStream
	reversed bool
	limit    int64
	sent     []interface{}
}

func (c *collector) SendMsg(m interface{}) error {
	if rows, ok := m.(*btpb.ReadRowsResponse); !ok || len(rows.Chunks) > 0 {
		c.sent = append(c.sent, m)
	}
	return nil
}

// RecvMsg finds `reversed`, field 7 of a ReadRowsRequest, which this bttest is too old to know.
func (c *collector) RecvMsg(m interface{}) error {
	err := c.ServerStream.RecvMsg(m)
	if req, ok := m.(*btpb.ReadRowsRequest); ok && bytes.Contains(req.XXX_unrecognized, []byte{0x38, 0x01}) {
		c.reversed, c.limit, req.RowsLimit = true, req.RowsLimit, 0
	}
	return err
}

func (c *collector) messages() []interface{} {
	sent := c.sent
	if c.reversed {
		for i, j := 0, len(sent)-1; i < j; i, j = i+1, j-1 {
			sent[i], sent[j] = sent[j], sent[i]
		}
		if c.limit > 0 && int64(len(sent)) > c.limit {
			sent = sent[:c.limit]
		}
	}
	var out []interface{}
	for _, m := range sent {
		if rows, ok := m.(*btpb.ReadRowsResponse); ok {
			out = append(out, inPieces(rows)...)
		} else {
			out = append(out, m)
		}
	}
	return out
}

func inPieces(rows *btpb.ReadRowsResponse) []interface{} {
	var out []interface{}
	message := &btpb.ReadRowsResponse{}
	for _, chunk := range rows.Chunks {
		value, size := chunk.Value, int32(len(chunk.Value))
		for len(value) > pieceBytes {
			chunk.Value, chunk.ValueSize = value[:pieceBytes], size
			status := chunk.RowStatus
			chunk.RowStatus = nil
			message.Chunks = append(message.Chunks, chunk)
			out = append(out, message)
			message = &btpb.ReadRowsResponse{}
			value = value[pieceBytes:]
			chunk = &btpb.ReadRowsResponse_CellChunk{RowStatus: status, Value: value}
		}
		message.Chunks = append(message.Chunks, chunk)
	}
	return append(out, message)
}

func stream(srv interface{}, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	time.Sleep(*delay)
	faulty := isData(info.FullMethod)
	if faulty && chance(*before) {
		return status.Error(codes.Unavailable, "not done")
	}
	c := &collector{ServerStream: ss}
	mu.Lock()
	err := handler(srv, c)
	messages := c.messages()
	mu.Unlock()
	if faulty && err == nil && chance(*after) {
		messages = messages[:rand.Intn(len(messages)+1)]
		err = status.Error(codes.Unavailable, "broken off")
	}
	for _, m := range messages {
		if e := ss.SendMsg(m); e != nil {
			return e
		}
	}
	return err
}

func main() {
	flag.Parse()
	rand.Seed(time.Now().UnixNano())
	server, err := bttest.NewServer(*addr, grpc.UnaryInterceptor(unary), grpc.StreamInterceptor(stream),
		grpc.MaxRecvMsgSize(messageBytes), grpc.MaxSendMsgSize(messageBytes))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(server.Addr)
	if *stdin {
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	}
	select {}
}
