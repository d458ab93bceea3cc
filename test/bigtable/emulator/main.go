// Google's Bigtable server in memory (bttest), with what the tests need beside it: a lock around every call, descending
// reads, long values in pieces, refusals of what the service refuses, scans that take time, and faults. It prints its address.
//
//	GO111MODULE=off GOPATH=/usr/share/gocode go build -o emulator .
package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"math/rand"
	"os"
	"strings"
	"sync"
	"time"

	"cloud.google.com/go/bigtable/bttest"
	"github.com/golang/protobuf/proto"
	btpb "google.golang.org/genproto/googleapis/bigtable/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// A value that is longer comes in pieces of this size, each in a message of its own, as Bigtable does it.
const pieceBytes = 64 << 10

// A message that is larger is refused: Bigtable's own bound is near.
const messageBytes = 256 << 20

// Bigtable refuses a filter that is larger, and a key that is longer.
const filterBytes = 20480
const keyBytes = 4096

var (
	addr     = flag.String("addr", "127.0.0.1:0", "where to listen")
	stdin    = flag.Bool("stdin", false, "end when the standard input ends, as it does when the parent is killed")
	delay    = flag.Duration("delay", 0, "before every call")
	rowDelay = flag.Duration("row-delay", 0, "for every row that a read passes, whether the row is sent or not")
	progress = flag.Duration("progress", time.Second, "after which a read that sends no row says how far it has come; 0: never")
	before   = flag.Float64("fail-before", 0, "share of the calls that are not done and answered UNAVAILABLE")
	after    = flag.Float64("fail-after", 0, "share that is done and answered UNAVAILABLE; streams break off somewhere")
	refuse   = flag.Bool("refuse-changes", false, "refuse CheckAndMutateRow, as with an app profile that routes to any cluster")
	late     = flag.Float64("late", 0, "share of the changes that are answered DEADLINE_EXCEEDED and done 200 ms later")
)

// bttest shares the names of columns between a row and its copies, so that a read beside a write of the same row would
// miss columns or have them twice.
var mu sync.Mutex

func chance(p float64) bool { return rand.Float64() < p }

func isData(method string) bool { return strings.HasPrefix(method, "/google.bigtable.v2.") }

func invalid(message string) error { return status.Error(codes.InvalidArgument, message) }

func checkKey(key []byte) error {
	if len(key) == 0 || len(key) > keyBytes {
		return invalid("a row key has 1 to 4096 bytes")
	}
	return nil
}

func checkFilter(filter *btpb.RowFilter) error {
	if filter != nil && proto.Size(filter) > filterBytes {
		return invalid("a filter has at most 20480 bytes")
	}
	return nil
}

// check refuses what bttest does, and Bigtable does not.
func check(req interface{}) error {
	switch r := req.(type) {
	case *btpb.MutateRowRequest:
		return checkKey(r.RowKey)
	case *btpb.CheckAndMutateRowRequest:
		if err := checkFilter(r.PredicateFilter); err != nil {
			return err
		}
		return checkKey(r.RowKey)
	}
	return nil
}

func answerLate(do func()) error {
	time.AfterFunc(200*time.Millisecond, do)
	return status.Error(codes.DeadlineExceeded, "done later")
}

func unary(ctx context.Context, req interface{}, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (interface{}, error) {
	time.Sleep(*delay)
	if *refuse && strings.HasSuffix(info.FullMethod, "/CheckAndMutateRow") {
		return nil, status.Error(codes.FailedPrecondition, "Single-row transactions are not allowed by this app profile")
	}
	if err := check(req); err != nil {
		return nil, err
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
		return nil, answerLate(func() { _, _ = do(context.Background()) })
	}
	res, err := do(ctx)
	if faulty && err == nil && chance(*after) {
		return nil, status.Error(codes.Unavailable, "done")
	}
	return res, err
}

// handled is a stream for a handler of bttest: it has the request already, and keeps what is sent, so that the lock is not
// held while a slow client reads.
type handled struct {
	grpc.ServerStream
	request interface{}
	sent    []interface{}
}

func (h *handled) SendMsg(m interface{}) error {
	h.sent = append(h.sent, m)
	return nil
}

func (h *handled) RecvMsg(m interface{}) error {
	switch m := m.(type) {
	case *btpb.ReadRowsRequest:
		*m = *h.request.(*btpb.ReadRowsRequest)
	case *btpb.MutateRowsRequest:
		*m = *h.request.(*btpb.MutateRowsRequest)
	default:
		return h.ServerStream.RecvMsg(m)
	}
	return nil
}

// call is a call that streams its answer. Whoever runs it has the lock.
type call struct {
	grpc.ServerStream
	srv     interface{}
	handler grpc.StreamHandler
}

func (c *call) run(request interface{}) ([]interface{}, error) {
	h := &handled{ServerStream: c.ServerStream, request: request}
	err := c.handler(c.srv, h)
	return h.sent, err
}

// features of the client that matter here: fields 1 and 4 of google.bigtable.v2.FeatureFlags.
type features struct{ reverse, lastScanned bool }

func featuresOf(ctx context.Context) features {
	var out features
	md, _ := metadata.FromIncomingContext(ctx)
	for _, text := range md.Get("bigtable-features") {
		text = strings.NewReplacer("+", "-", "/", "_", "=", "").Replace(text)
		flags, _ := base64.RawURLEncoding.DecodeString(text)
		for len(flags) > 0 {
			tag, n := binary.Uvarint(flags)
			if n <= 0 || tag&7 != 0 {
				break
			}
			value, size := binary.Uvarint(flags[n:])
			if size <= 0 {
				break
			}
			flags = flags[n+size:]
			out.reverse = out.reverse || tag>>3 == 1 && value != 0
			out.lastScanned = out.lastScanned || tag>>3 == 4 && value != 0
		}
	}
	return out
}

// breakOff cuts an answer short, sometimes.
func breakOff(messages []interface{}) ([]interface{}, error) {
	if !chance(*after) {
		return messages, nil
	}
	return messages[:rand.Intn(len(messages)+1)], status.Error(codes.Unavailable, "broken off")
}

// isReversed finds field 7 of a request, which this bttest is too old to know.
func isReversed(req *btpb.ReadRowsRequest) bool {
	return bytes.Contains(req.XXX_unrecognized, []byte{0x38, 0x01})
}

func keyOf(m interface{}) []byte { return m.(*btpb.ReadRowsResponse).Chunks[0].RowKey }

func readRows(c *call) error {
	req := &btpb.ReadRowsRequest{}
	if err := c.RecvMsg(req); err != nil {
		return err
	}
	able := featuresOf(c.Context())
	reversed, limit := isReversed(req), int(req.RowsLimit)
	if reversed && !able.reverse {
		return status.Error(codes.Unimplemented, "Client doesn't support reverse scans yet")
	}
	if err := checkFilter(req.Filter); err != nil {
		return err
	}
	mu.Lock()
	rows, passed, err := rowsOf(c, req, reversed)
	mu.Unlock()
	if err != nil {
		return err
	}
	isFull := limit > 0 && len(rows) == limit
	rows, broken := breakOff(rows)
	sent := time.Now()
	next := sent
	for _, key := range passed {
		if len(rows) == 0 && (broken != nil || isFull) {
			break
		}
		if *rowDelay > 0 {
			next = next.Add(*rowDelay)
			if err := sleepUntil(c.Context(), next); err != nil {
				return err
			}
		}
		if len(rows) > 0 && bytes.Equal(keyOf(rows[0]), key) {
			pieces := inPieces(rows[0].(*btpb.ReadRowsResponse))
			if broken != nil && len(rows) == 1 {
				pieces = pieces[:rand.Intn(len(pieces)+1)]
			}
			for _, m := range pieces {
				if err := c.SendMsg(m); err != nil {
					return err
				}
			}
			rows, sent = rows[1:], time.Now()
		} else if able.lastScanned && *progress > 0 && time.Since(sent) >= *progress {
			if err := c.SendMsg(&btpb.ReadRowsResponse{LastScannedRowKey: key}); err != nil {
				return err
			}
			sent = time.Now()
		}
	}
	return broken
}

// rowsOf returns the rows that are found, one per message, and, if that takes time, the keys of all rows in the read's order.
func rowsOf(c *call, req *btpb.ReadRowsRequest, reversed bool) ([]interface{}, [][]byte, error) {
	limit := int(req.RowsLimit)
	if reversed {
		req.RowsLimit = 0
	}
	all, err := c.run(req)
	if err != nil {
		return nil, nil, err
	}
	rows := all[:0]
	for _, m := range all {
		if len(m.(*btpb.ReadRowsResponse).Chunks) > 0 {
			rows = append(rows, m)
		}
	}
	passed := append([]interface{}{}, rows...)
	if *rowDelay > 0 {
		every := *req
		every.RowsLimit = 0
		every.Filter = &btpb.RowFilter{Filter: &btpb.RowFilter_StripValueTransformer{StripValueTransformer: true}}
		if passed, err = c.run(&every); err != nil {
			return nil, nil, err
		}
	}
	if reversed {
		reverse(rows)
		reverse(passed)
	}
	if limit > 0 && len(rows) > limit {
		rows = rows[:limit]
	}
	keys := make([][]byte, 0, len(passed))
	for _, m := range passed {
		keys = append(keys, keyOf(m))
	}
	return rows, keys, nil
}

func reverse(messages []interface{}) {
	for i, j := 0, len(messages)-1; i < j; i, j = i+1, j-1 {
		messages[i], messages[j] = messages[j], messages[i]
	}
}

func sleepUntil(ctx context.Context, at time.Time) error {
	select {
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	case <-time.After(time.Until(at)):
		return nil
	}
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

// mutateRows answers entry by entry, so that a part of the answer may be lost.
func mutateRows(c *call) error {
	req := &btpb.MutateRowsRequest{}
	if err := c.RecvMsg(req); err != nil {
		return err
	}
	for _, entry := range req.Entries {
		if err := checkKey(entry.RowKey); err != nil {
			return err
		}
	}
	do := func() ([]interface{}, error) {
		mu.Lock()
		defer mu.Unlock()
		return c.run(req)
	}
	if chance(*late) {
		return answerLate(func() { _, _ = do() })
	}
	all, err := do()
	if err != nil {
		return err
	}
	var entries []interface{}
	for _, m := range all {
		for _, entry := range m.(*btpb.MutateRowsResponse).Entries {
			entries = append(entries, &btpb.MutateRowsResponse{Entries: []*btpb.MutateRowsResponse_Entry{entry}})
		}
	}
	entries, broken := breakOff(entries)
	for _, m := range entries {
		if err := c.SendMsg(m); err != nil {
			return err
		}
	}
	return broken
}

func stream(srv interface{}, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	time.Sleep(*delay)
	if isData(info.FullMethod) && chance(*before) {
		return status.Error(codes.Unavailable, "not done")
	}
	c := &call{ServerStream: ss, srv: srv, handler: handler}
	switch {
	case strings.HasSuffix(info.FullMethod, "/ReadRows"):
		return readRows(c)
	case strings.HasSuffix(info.FullMethod, "/MutateRows"):
		return mutateRows(c)
	}
	mu.Lock()
	all, err := c.run(nil)
	mu.Unlock()
	for _, m := range all {
		if err := ss.SendMsg(m); err != nil {
			return err
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
