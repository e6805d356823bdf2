// Package runtime runs compiled Go Lambda functions on this machine: it starts
// the binary as a child process and serves it the Lambda Runtime API, which is
// all that lambda.Start of aws-lambda-go needs.
//
//	pool, err := runtime.Start(ctx, runtime.Function{Path: "./bootstrap", Timeout: 5 * time.Second}, nil)
//	...
//	defer pool.Close()
//	result, err := pool.Invoke(ctx, []byte(`{"paymentId":"p-1"}`), nil)
//
// # What is as in Lambda
//
//   - One invocation at a time per instance (process), several instances up to
//     a limit, the most recently used idle one first. Above the limit a caller
//     waits, where Lambda answers 429.
//   - Request id, deadline, function ARN, trace id and tenant id in the
//     Runtime API's headers; the environment that Lambda sets.
//   - SIGKILL at the deadline, counted from the moment the process is given the
//     event. The caller gets errorType Sandbox.Timedout.
//   - A process that exits gives errorType Runtime.ExitError, unless it had
//     answered or posted an error (a panic does) before. The next invocation
//     starts a fresh one. So does an init that fails or takes over 10 s.
//   - SIGTERM half a second before SIGKILL, at the time-out and at the end of an
//     instance, for a function that asks for it with lambda.WithEnableSIGTERM:
//     it may run on for that long after its deadline.
//   - With Options.Freeze nothing runs in an instance between invocations.
//   - 6 MB for events, a little more for answers (errorType
//     Function.ResponseSizeTooLarge, and the process, refused with 413, exits);
//     1 MB for asynchronous events.
//   - The retries of an asynchronous invocation, under the same request id.
//   - A caller that goes away does not stop the function.
//
// # Several invocations in one process
//
// With Function.Concurrency above 1 an instance works as on Lambda Managed
// Instances: the function is told by AWS_LAMBDA_MAX_CONCURRENCY, nothing is ever
// frozen, and a time-out concerns one invocation alone. Its caller gets
// Sandbox.Timedout; the process, its neighbours and the late handler itself run
// on. What the late handler answers in the end is accepted and dropped. A handler
// is therefore NOT stopped by its deadline there: it must look at its context.
//
// A panic of one posts its error, the neighbours run to their ends, then the
// process exits, which is aws-lambda-go's doing; new work goes to another
// instance meanwhile, which does not count it. An exit or a kill ends them all.
// Two things are this package's own: an instance in which every worker is past
// its time-out is ended, since it can do nothing for anybody any more, and
// invocations that come while a process starts wait for it rather than start more.
//
// # What is not imitated
//
// Extensions with events, X-Ray, response streaming, SnapStart, provisioned
// concurrency, limits on memory, CPU and /tmp, instances apart per tenant, the
// queue and the destinations of asynchronous invocations, IAM. A failed init is
// not tried a second time within the same invocation. Instances live until the
// pool is closed. Region and account are us-east-1 and 123456789012; Function.Env may
// say otherwise.
//
// # Nothing is left behind
//
// Everything listens on 127.0.0.1, each instance on a port of its own, so that
// instances cannot take each other's work. Close leaves no process and no port,
// and what a function has started ends with it. If this process dies without
// Close, the kernel kills the functions on Linux (frozen ones too); elsewhere they
// end when they next ask for work, and frozen ones stay. What functions have
// started themselves, and their folders under the system's one for temporary
// files, stay in that case.
//
// Source: AWS Lambda developer guide, "Using the Lambda runtime API for custom
// runtimes", "Understanding the Lambda execution environment lifecycle",
// "Understanding the Lambda Managed Instances execution environment", "Using the
// Lambda Extensions API", "Defined runtime environment variables".
package runtime
