// Package runtime runs compiled Go Lambda functions on this machine: it starts
// the binary as a child process and serves it the Lambda Runtime API. lambda.Start of
// aws-lambda-go needs nothing else.
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
//   - Request id, deadline, function ARN and trace id in the Runtime API's headers; the
//     environment that Lambda sets.
//   - SIGKILL at the deadline, counted from the moment the process is given the
//     event. The caller gets errorType Sandbox.Timedout.
//   - A process that exits gives errorType Runtime.ExitError, unless it had answered or
//     posted an error before, as a panic does. The next invocation starts a new process.
//     The same happens after an init that fails or takes over 10 s.
//   - With Options.Freeze nothing runs in an instance between invocations.
//   - 6 MB for events, a little more for answers. A larger answer is refused with 413 and
//     errorType Function.ResponseSizeTooLarge, and the process exits.
//   - A caller that disconnects does not stop the function.
//
// # Several invocations in one process
//
// With Function.Concurrency above 1 an instance works as on Lambda Managed Instances: the
// function gets AWS_LAMBDA_MAX_CONCURRENCY, nothing is frozen, and a time-out ends only one
// invocation. Its caller gets Sandbox.Timedout. The process, the other invocations and the
// late handler itself keep running. The late handler's answer is accepted and dropped. The
// deadline therefore does NOT stop a handler: the handler must watch its context.
//
// If a handler panics, its error is posted, the other invocations run to their ends, and
// then aws-lambda-go ends the process. From the panic on, new work goes to another
// instance, and the ending one does not count as an instance. An exit or a kill ends all
// invocations of a process.
//
// Two things differ from Lambda: an instance in which every worker is past its time-out is
// ended, since it cannot do any work, and invocations that come while a process starts wait
// for it and do not start more.
//
// # What is not imitated
//
// Extensions, and with them SIGTERM before SIGKILL, X-Ray, response streaming, SnapStart,
// provisioned concurrency, limits on memory, CPU and /tmp, tenant isolation, asynchronous
// invocations, IAM. A failed init is not tried a second time within the same invocation.
// Instances live until the pool is closed. Region and account are those of package iam;
// Function.Env may set another region.
//
// # Nothing is left behind
//
// Everything listens on 127.0.0.1, each instance on a port of its own, so that instances
// cannot take each other's work. Close leaves no process and no port, and ends the processes
// that functions have started. If this process dies without Close, the kernel kills the
// functions on Linux, even frozen ones. Elsewhere they end when they next ask for work, and
// frozen ones stay. In that case the processes that functions have started stay too, and so
// do the functions' folders in the system's temporary folder.
//
// Source: AWS Lambda developer guide, "Using the Lambda runtime API for custom
// runtimes", "Understanding the Lambda execution environment lifecycle",
// "Understanding the Lambda Managed Instances execution environment", "Defined runtime
// environment variables".
package runtime
