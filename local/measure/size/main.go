// Command size prints what idem adds to a Lambda function that makes the same
// DynamoDB calls by hand: megabytes of its binary as it is deployed, and time
// from process start to the first request for an event.
//
//	go run ./local/measure/size
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

// rounds of the start-up measurement, the two programs taking turns. The median
// of an odd number is one that was measured.
const rounds = 21

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "size:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "idem-size-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	names := []string{"bare", "wrapped"}
	var mb [2]float64
	var start [2][]time.Duration
	var bins [2]string
	for i, name := range names {
		deployed := filepath.Join(dir, name+"-arm64")
		if err := build(ctx, name, deployed, "GOOS=linux", "GOARCH=arm64"); err != nil {
			return err
		}
		info, err := os.Stat(deployed)
		if err != nil {
			return err
		}
		mb[i] = float64(info.Size()) / 1e6
		bins[i] = filepath.Join(dir, name)
		if err := build(ctx, name, bins[i]); err != nil {
			return err
		}
	}
	for range rounds {
		for i := range bins {
			d, err := firstPoll(ctx, bins[i])
			if err != nil {
				return fmt.Errorf("%s: %w", names[i], err)
			}
			start[i] = append(start[i], d)
		}
	}
	fmt.Printf("%-22s %12s %12s %10s\n", "", "bare SDK", "with idem", "idem adds")
	fmt.Printf("%-22s %9.2f MB %9.2f MB %+7.2f MB\n", "binary (linux/arm64)", mb[0], mb[1], mb[1]-mb[0])
	a, b := median(start[0]), median(start[1])
	fmt.Printf("%-22s %9.2f ms %9.2f ms %+7.2f ms\n", "start-up (this host)", ms(a), ms(b), ms(b-a))
	return nil
}

// build compiles one of the programs as functions are deployed.
func build(ctx context.Context, name, out string, env ...string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-tags", "lambda.norpc", "-trimpath",
		"-ldflags", "-s -w", "-o", out, "./local/measure/size/"+name)
	cmd.Env = append(append(os.Environ(), "CGO_ENABLED=0"), env...)
	if msg, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build %s: %w\n%s", name, err, msg)
	}
	return nil
}

// firstPoll starts the program against a runtime API that has no event for it
// and returns the time until it asks for one.
func firstPoll(ctx context.Context, bin string) (time.Duration, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	polled := make(chan time.Time, 1)
	srv := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case polled <- time.Now():
		default:
		}
		<-r.Context().Done()
	})}
	go func() { _ = srv.Serve(l) }()
	defer srv.Close()

	cmd := exec.CommandContext(ctx, bin)
	cmd.Env = []string{
		"AWS_LAMBDA_RUNTIME_API=" + l.Addr().String(), "IDEM_TABLE=size", "AWS_REGION=us-east-1",
		"AWS_ACCESS_KEY_ID=size", "AWS_SECRET_ACCESS_KEY=size",
	}
	cmd.Stderr = os.Stderr
	begun := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	select {
	case at := <-polled:
		return at.Sub(begun), nil
	case <-time.After(10 * time.Second):
		return 0, errors.New("asked for no event within 10 s")
	}
}

func median(ds []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(ds))[len(ds)/2]
}

func ms(d time.Duration) float64 { return float64(d) / 1e6 }
