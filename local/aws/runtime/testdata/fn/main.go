// Command fn is the function that the tests of package runtime run.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-lambda-go/lambdacontext"
)

type request struct {
	Do   string `json:"do"`
	Size int    `json:"size"`
	Say  string `json:"say"`
}

type declined struct{ code string }

func (d declined) Error() string { return "card declined: " + d.code }

var (
	calls atomic.Int64
	ticks atomic.Int64
)

func handle(ctx context.Context, raw json.RawMessage) (any, error) {
	var in request
	if err := json.Unmarshal(raw, &in); err != nil {
		return nil, err
	}
	calls := calls.Add(1)
	switch in.Do {
	case "echo":
		return raw, nil
	case "who":
		return map[string]any{"pid": os.Getpid(), "calls": calls}, nil
	case "error":
		return nil, declined{code: "insufficient_funds"}
	case "panic":
		panic(errors.New("index out of luck"))
	case "exit":
		os.Exit(in.Size)
	case "hang":
		fmt.Println("hanging")
		select {} // a context that is ignored
	case "until":
		for {
			if _, err := os.Stat(in.Say); err == nil {
				return map[string]any{"pid": os.Getpid(), "calls": calls}, nil
			}
			time.Sleep(time.Millisecond)
		}
	case "tick": // runs after the reply, unless it is frozen
		go func() {
			for {
				ticks.Add(1)
				os.WriteFile(in.Say, []byte(fmt.Sprint(ticks.Load())), 0o600)
				time.Sleep(time.Millisecond)
			}
		}()
		return nil, nil
	case "ticks":
		return ticks.Load(), nil
	case "deadline":
		deadline, _ := ctx.Deadline()
		return map[string]any{"deadlineMs": deadline.UnixMilli(), "nowMs": time.Now().UnixMilli()}, nil
	case "big":
		return strings.Repeat("x", in.Size-2), nil // the quotes make up the rest
	case "stream":
		return &brokenReader{}, nil
	case "say":
		fmt.Println("out " + in.Say)
		fmt.Fprintln(os.Stderr, "err "+in.Say)
		return nil, nil
	case "child":
		child := exec.Command("sleep", "600")
		child.Stdout = os.Stdout
		if err := child.Start(); err != nil {
			return nil, err
		}
		return child.Process.Pid, nil
	case "context":
		lc, _ := lambdacontext.FromContext(ctx)
		return map[string]any{"lc": lc, "env": os.Environ(), "trace": ctx.Value("x-amzn-trace-id")}, nil
	}
	return nil, fmt.Errorf("unknown do %q", in.Do)
}

// brokenReader is an answer that fails while it is on its way.
type brokenReader struct{ sent bool }

func (b *brokenReader) Read(p []byte) (int, error) {
	if b.sent {
		return 0, errors.New("source went away")
	}
	b.sent = true
	return copy(p, "half an ans"), nil
}

// MarshalJSON refuses, since an answer that is JSON is not read.
func (b *brokenReader) MarshalJSON() ([]byte, error) { return nil, errors.New("not JSON") }

func main() {
	switch os.Getenv("FN_INIT") {
	case "exit":
		fmt.Fprintln(os.Stderr, "no table configured")
		os.Exit(3)
	case "panic":
		panic("bad configuration")
	case "hang":
		select {}
	}
	lambda.Start(handle)
}
