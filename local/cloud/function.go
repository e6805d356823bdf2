package cloud

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sync"

	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/local/aws/runtime"
)

// function is one that runs. An update replaces its processes; those that work end with their invocations.
type function struct {
	mu      sync.Mutex
	current *generation
	old     sync.WaitGroup
}

// generation is a function as it was described and built at one time.
type generation struct {
	what string
	pool *runtime.Pool
	busy sync.WaitGroup
}

// take is the newest generation. It stays until the caller is done.
func (f *function) take() *generation {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.current.busy.Add(1)
	return f.current
}

// Invoke invokes the function.
func (f *function) Invoke(ctx context.Context, event []byte, o *runtime.InvokeOptions) (runtime.Result, error) {
	g := f.take()
	defer g.busy.Done()
	return g.pool.Invoke(ctx, event, o)
}

// Call invokes the function for its answer.
func (f *function) Call(ctx context.Context, event []byte) ([]byte, error) {
	g := f.take()
	defer g.busy.Done()
	return g.pool.Call(ctx, event)
}

// replace has a new generation take what comes.
func (f *function) replace(g *generation) {
	f.mu.Lock()
	old := f.current
	f.current = g
	f.mu.Unlock()
	if old != nil {
		f.old.Go(func() {
			old.busy.Wait()
			old.pool.Close()
		})
	}
}

// end ends its processes.
func (f *function) end() {
	f.current.pool.Close()
	f.old.Wait()
}

// startFunctions starts the functions that are new or have changed.
func (r *Running) startFunctions(ctx context.Context, p *Plan, bins map[string]string) error {
	for _, f := range p.Functions {
		sum, err := digest(bins[f.Name])
		if err != nil {
			return fmt.Errorf("%s: %w", f.of, err)
		}
		env := r.environment(f)
		what := fmt.Sprint(sum, env, f.Timeout, f.MaxInstances)
		running := r.functions[f.Name]
		if running != nil && running.current.what == what {
			continue
		}
		pool, err := runtime.Start(ctx, runtime.Function{Path: bins[f.Name], Name: f.Name, Timeout: f.Timeout,
			MaxInstances: f.MaxInstances, Env: env}, &runtime.Options{Output: r, Freeze: true})
		if err != nil {
			return fmt.Errorf("%s: %w", f.of, err)
		}
		if running == nil {
			running = &function{}
			r.functions[f.Name] = running
		} else {
			r.options.Log("%s has changed", f.Name)
		}
		running.replace(&generation{what: what, pool: pool})
	}
	return nil
}

// environment is that of a function: what its template says, with the endpoints of what is here.
func (r *Running) environment(f Function) []string {
	env := []string{
		"AWS_ENDPOINT_URL=" + r.elsewhere, "AWS_REGION=" + region, "AWS_DEFAULT_REGION=" + region,
		"AWS_ACCESS_KEY_ID=" + AccessKey, "AWS_SECRET_ACCESS_KEY=" + SecretKey,
	}
	if url := r.Endpoints.DynamoDB; url != "" {
		env = append(env, schema.EnvEndpoint+"="+url, "AWS_ENDPOINT_URL_DYNAMODB="+url,
			"AWS_ENDPOINT_URL_DYNAMODB_STREAMS="+url)
	}
	if url := r.Endpoints.Queues; url != "" {
		env = append(env, "AWS_ENDPOINT_URL_SQS="+url, "AWS_ENDPOINT_URL_SNS="+url)
	}
	for _, name := range slices.Sorted(maps.Keys(f.Env)) {
		env = append(env, name+"="+f.Env[name])
	}
	return env
}

func digest(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return string(h.Sum(nil)), err
}
