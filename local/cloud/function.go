package cloud

import (
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/local/aws/runtime"
)

// function is one that runs. An update replaces its processes; those that work end with their invocations.
type function struct {
	name    string
	running *Running
	paused  sync.RWMutex // locked while what invokes it waits

	mu      sync.Mutex
	current *generation // nil if the templates do not have the function any more
}

// drainPoll is how often a process that was replaced is looked at.
const drainPoll = 50 * time.Millisecond

// generation is a function as it was described and built at one time.
type generation struct {
	what string
	pool *runtime.Pool
	busy sync.WaitGroup
}

// drain ends a generation that no call takes any more, once nothing works, also for callers that have left.
func (r *Running) drain(g *generation) {
	g.busy.Wait()
	for len(g.pool.InFlight()) > 0 {
		time.Sleep(drainPoll)
	}
	g.pool.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.generations, g)
}

// take is the newest generation. It stays until the caller is done.
func (f *function) take() *generation {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.current != nil {
		f.current.busy.Add(1)
	}
	return f.current
}

func (f *function) Invoke(ctx context.Context, event []byte, _ *runtime.InvokeOptions) (runtime.Result, error) {
	f.paused.RLock()
	defer f.paused.RUnlock()
	g := f.take()
	if g == nil {
		return runtime.Result{}, runtime.ErrClosed
	}
	defer g.busy.Done()
	trace, inv := f.running.front.begin(f.name, g.pool)
	begun := time.Now()
	result, err := g.pool.Invoke(ctx, event, &runtime.InvokeOptions{Trace: trace})
	f.running.front.end(trace)
	if err != nil {
		return result, err
	}
	inv.Result, inv.Took = result, time.Since(begun)
	switch source := ctx.Value(sourceKey{}).(type) {
	case *request:
		source.ended.Store(inv)
	case string:
		inv.Source = source
		f.running.invoked(*inv)
	}
	return result, nil
}

// Call invokes the function for its answer.
func (f *function) Call(ctx context.Context, event []byte) ([]byte, error) {
	result, err := f.Invoke(ctx, event, nil)
	if err == nil && result.Error != nil {
		err = result.Error
	}
	return result.Payload, err
}

// function is the one of that name; nil if there is none.
func (r *Running) function(name string) *function {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.functions[name]
}

func (r *Running) Names() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.functions))
}

// Pool has the processes of a function; an update may replace it. It is nil if there is no such function.
func (r *Running) Pool(function string) *runtime.Pool {
	f := r.function(function)
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.current == nil {
		return nil
	}
	return f.current.pool
}

// Pause has what invokes a function wait until resume is called.
func (r *Running) Pause(function string) (resume func()) {
	f := r.function(function)
	f.paused.Lock()
	return f.paused.Unlock
}

// replace has a new generation take what comes, or none.
func (f *function) replace(g *generation) {
	f.mu.Lock()
	old := f.current
	f.current = g
	f.mu.Unlock()
	if old != nil {
		f.running.draining.Go(func() { f.running.drain(old) })
	}
}

// startFunctions starts the functions that are new or have changed.
func (r *Running) startFunctions(ctx context.Context, p *Plan, bins map[string]string) error {
	var output io.Writer = r
	if r.options.Quiet {
		output = io.Discard
	}
	for _, f := range p.Functions {
		sum, err := digest(bins[f.Name])
		if err != nil {
			return fmt.Errorf("%s: %w", f.of, err)
		}
		env := r.environment(f)
		what := fmt.Sprint(sum, env, f.Timeout, f.MaxInstances)
		running := r.function(f.Name)
		if running != nil && running.current.what == what {
			continue
		}
		if program, err := buildinfo.ReadFile(bins[f.Name]); err == nil { // it is one in Go
			if old := oldSDK(program.Deps); old != "" {
				r.options.Log("%s: %s does not read AWS_ENDPOINT_URL: its calls go to AWS, without valid credentials; "+
					"github.com/aws/aws-sdk-go-v2/config v1.21.0 does", f.of, old)
			}
		}
		path, o := bins[f.Name], &runtime.Options{Output: output, Freeze: true, TempDir: r.options.RunDir}
		if f.debugged {
			if path, err = r.debugger(f, path); err != nil {
				return fmt.Errorf("%s: %w", f.of, err)
			}
			o.Freeze, o.InitTimeout = false, debugTimeout
		}
		pool, err := runtime.Start(ctx, runtime.Function{Path: path, Name: f.Name, Timeout: f.Timeout,
			MaxInstances: f.MaxInstances, Env: env}, o)
		if err != nil {
			return fmt.Errorf("%s: %w", f.of, err)
		}
		made := &generation{what: what, pool: pool}
		if running != nil {
			r.options.Log("%s has changed", f.Name)
		} else {
			running = &function{name: f.Name, running: r}
		}
		r.mu.Lock()
		r.generations[made], r.functions[f.Name] = filepath.Dir(bins[f.Name]), running
		r.mu.Unlock()
		running.replace(made)
	}
	return nil
}

// endFunctions ends the functions that the templates do not have any more, once nothing works in them.
func (r *Running) endFunctions(p *Plan) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, f := range r.functions {
		if p.function(name) == nil {
			delete(r.functions, name)
			f.replace(nil)
		}
	}
}

// environment is that of a function: what its template says, with the front as the endpoint of all services.
func (r *Running) environment(f Function) []string {
	env := []string{
		"AWS_ENDPOINT_URL=" + r.Endpoints.Functions, schema.EnvEndpoint + "=" + r.Endpoints.Functions, "AWS_REGION=" + region,
		"AWS_DEFAULT_REGION=" + region, "AWS_ACCESS_KEY_ID=" + r.front.keyOf(f.Name), "AWS_SECRET_ACCESS_KEY=" + SecretKey,
	}
	for _, name := range slices.Sorted(maps.Keys(f.Env)) {
		env = append(env, name+"="+f.Env[name])
	}
	return env
}

// invoke answers Invoke of Lambda, by which functions and operators call a function.
func (r *Running) invoke(w http.ResponseWriter, req *http.Request, name string, event []byte) {
	f := r.function(name)
	switch {
	case f == nil:
		w.Header().Set("X-Amzn-ErrorType", "ResourceNotFoundException")
		http.Error(w, fmt.Sprintf(`{"Message":"Function not found: %s"}`, name), http.StatusNotFound)
		return
	case len(event) == 0: // as without --payload
		event = []byte("{}")
	}
	work := func() (runtime.Result, error) {
		result, err := f.Invoke(from(context.WithoutCancel(req.Context()), InvokeOf+f.name), event, nil)
		if err == nil && result.Error != nil {
			r.report("%s: %v", name, result.Error)
		}
		return result, err
	}
	if req.Header.Get("X-Amz-Invocation-Type") == "Event" { // which is not tried again here
		go func() { _, _ = work() }()
		w.WriteHeader(http.StatusAccepted)
		return
	}
	result, err := work()
	if err != nil {
		http.Error(w, fmt.Sprintf(`{"Message":%q}`, err), http.StatusInternalServerError)
		return
	}
	if result.Error != nil {
		w.Header().Set("X-Amz-Function-Error", "Unhandled")
	}
	_, _ = w.Write(result.Payload)
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
