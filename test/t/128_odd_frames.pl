
# ZooKeeper's client library does not survive frames that it does not expect.  The server does: an
# odd frame ends the connection, or the worker, and the next worker carries the session on.

use strict;
use warnings;

use HoldingProxy;
use ZklockTest;

# ZooKeeper's numbers of requests, and the head of an answer: the request's number, a zxid and an
# error code.
my %type = (exists => 3, data => 4, children => 8, multi => 14, create2 => 15, container => 19);
my $head = 16;
my $stat = "\1" x 68;

# A name => the type of the request, and what comes in place of its answer; undef: the answer
# passes.
sub cut { my ($length) = @_; return sub { return pack 'N/a', substr $_[0], 0, $length; }; }
sub with_body { my (@body) = @_; return sub { return pack 'N/a', substr($_[0], 0, $head) . pack(shift @body, @body); }; }
sub followed_by { my (@frame) = @_; my $frame = pack 'N/a', pack(shift @frame, @frame); return sub { return pack('N/a', $_[0]) . $frame; }; }

my %odd = (
	'an empty frame' => [ create2 => cut(0) ],
	'a short header' => [ create2 => cut(3) ],
	'a header without an error code' => [ create2 => cut($head - 4) ],
	'a negative length' => [ create2 => sub { return pack 'l>a*', -2, $_[0]; } ],
	'a huge length' => [ create2 => sub { return pack 'l>a*', 0x7fffffff, $_[0]; } ],
	'an odd number' => [ create2 => sub { return pack 'N/a', pack 'l>a*', 77, substr $_[0], 4; } ],
	'an answer without a request' => [ exists => sub { return pack('N/a', $_[0]) x 2; } ],
	'another answer without a request' => [ exists => followed_by('l>x8l>', 77, 0) ],

	'a truncated connect response' => [ connect => cut(20) ],
	'an empty connect response' => [ connect => cut(0) ],
	'a long connect response' => [ connect => sub { return pack 'N/a', $_[0] . 'x' x 1000; } ],
	'a connect response with a negative length' => [ connect => sub { return pack 'l>a*', -37, $_[0]; } ],
	'a session timeout of 0' => [ connect => sub { return pack 'N/a', substr($_[0], 0, 4) . pack('N', 0) . substr($_[0], 8); } ],
	'a negative session timeout' => [ connect => sub { return pack 'N/a', substr($_[0], 0, 4) . pack('l>', -1) . substr($_[0], 8); } ],
	'an answer to authentication that was not asked for' => [ exists => followed_by('l>x8l>', -4, 0) ],

	'a create without a path' => [ create2 => cut($head) ],
	'a negative length of a path' => [ create2 => with_body('l>a*', -1, $stat) ],
	'a very negative length of a path' => [ create2 => with_body('l>a*', -0x7fffffff, $stat) ],
	'a path beyond the frame' => [ create2 => with_body('l>a*', 4096, $stat) ],
	'a path without a slash' => [ create2 => with_body('l>/a*a*', 'name', $stat) ],
	'a create without a stat' => [ create2 => with_body('l>/a*', '/zklock/name') ],
	'half a stat' => [ exists => cut($head + 34) ],
	'no stat' => [ exists => cut($head) ],
	'an answer of another type' => [ children => with_body('a*', $stat) ],

	'a negative number of children' => [ children => with_body('l>', -5) ],
	# For a greater one, the library counts for as long as a session lives.
	'a huge number of children' => [ children => with_body('l>', 0x10000000) ],
	'fewer children than said' => [ children => with_body('l>l>/a*', 50, 'name') ],
	'a child of a negative length' => [ children => with_body('l>l>a*', 1, -1, 'name') ],
	'a child beyond the frame' => [ children => with_body('l>l>a*', 1, 1_000_000, 'name') ],
	'no children' => [ children => cut($head) ],

	'data beyond the frame' => [ data => with_body('l>a*', 1_000_000, $stat) ],
	'data of a negative length' => [ data => with_body('l>a*', -77, $stat) ],
	'data without a stat' => [ data => with_body('l>/a*', 'text') ],
	'no data' => [ data => cut($head) ],

	'a multi without results' => [ multi => cut($head) ],
	'a multi that ends at once' => [ multi => with_body('l>Cl>', -1, 1, -1) ],
	'too many results of a multi' => [ multi => with_body('(l>Cl>)*', (13, 0, 0) x 5, -1, 1, -1) ],
	'a multi without an end' => [ multi => with_body('l>Cl>', 13, 0, 0) ],
	'an error in a multi without its code' => [ multi => with_body('l>Cl>', -1, 0, -101) ],

	'a watch event without a path' => [ exists => followed_by('l>x12l>l>l>', -1, 4, 3, -1) ],
	'a watch event with a path beyond the frame' => [ exists => followed_by('l>x12l>l>l>', -1, 4, 3, 4096) ],
	'a watch event without anything' => [ exists => followed_by('l>x12', -1) ],
	'a watch event of an odd type' => [ exists => followed_by('l>x12l>l>l>/a*', -1, 77, 3, '/zklock') ],
	'an event of the session in an odd state' => [ exists => followed_by('l>x12l>l>l>/a*', -1, -1, 77, '') ]);

sub spoil
{
	my ($how, $type, $frame) = @_;
	my ($wanted, $change) = @{ $odd{$how} };
	return if $type ne ($type{$wanted} // $wanted);
	# A refused request has no more than a head.
	return if $type ne 'connect' && unpack 'x12 l>', $frame;
	return $change->($frame);
}

# Each server has a connection of its own that is spoilt, so that several have their odd frames at a
# time.
my $zk = ZooKeeper->new;
my @servers = map { { proxy => HoldingProxy->new($zk->hosts, spoil => \&spoil) } } 1 .. 4;
foreach my $i (0 .. $#servers)
{
	my $server = $servers[$i];
	$server->{node} = ZklockNode->started("n$i", undef, 'zklock.hosts' => $server->{proxy}->address,
		'zklock.session_timeout' => '15s', 'zklock.connection_timeout' => '1min', 'restart_after_crash' => 'on');
	$server->{$_} = $server->{node}->backend foreach qw(backend bystander);
	$server->{bystander}->query(acquire("/held/$i"));
	$server->{session} = $server->{node}->status('session_id');
}

my @todo = sort keys %odd;
my $n = 0;
while (my @batch = splice @todo, 0, @servers)
{
	foreach my $i (0 .. $#batch)
	{
		my ($server, $how) = ($servers[$i], $batch[$i]);
		$server->{node}->wait_until_connected;
		$server->{proxy}->spoil($how);
		$server->{proxy}->cut if $odd{$how}[0] eq 'connect';
		$server->{path} = '/odd/' . ++$n;
	}
	while (my @left = grep { !$_->{proxy}->is_spoilt } @servers[ 0 .. $#batch ])
	{
		$_->{backend}->send("SELECT zk_lock_acquire('$_->{path}', '10s'), count(*) FROM zk_lock_queue('$_->{path}')") foreach @left;
		$_->{backend}->result foreach @left;
		$_->{backend}->run('SELECT zk_lock_release_all()') foreach @left;
	}
	is($servers[$_]{bystander}->run('SELECT 1')->{out}, '1', "$batch[$_]: the server goes on") foreach 0 .. $#batch;
}

my $ended = 0;
foreach my $i (0 .. $#servers)
{
	my ($node, $proxy, $backend, $bystander) = @{ $servers[$i] }{qw(node proxy backend bystander)};
	$node->wait_until_connected;
	is($backend->query(acquire("/odd/end/$i")), 't', 'locks can be acquired in the end');
	my $log = slurp_file($node->logfile);
	$ended += () = $log =~ /client library has failed/g;
	unlike($log, qr/terminating any other active server processes/, 'and the server was never restarted');
	like($log, qr/restarting the zklock worker, because ZooKeeper's client library has failed\n.*DETAIL:  It was reading what server "\Q@{[ $proxy->address ]}\E" has sent, and failed with signal 6: Aborted/,
		'the log says why the worker was');
	is($node->status('session_id'), $servers[$i]{session}, 'the ZooKeeper session is the same');
	is($bystander->query(held("/held/$i")), 't', 'a lock that was held all the time still is');
	$_->quit foreach $backend, $bystander;
}
note "$ended of ", scalar(keys %odd), ' ended the worker';
my $node = $servers[0]{node};

# After a crash, the postmaster may send SIGABRT.  The library has no part in that, and the signal ends the
# worker at once.
my $log_at = -s $node->logfile;
kill 'ABRT', $node->worker_pid;
ok($node->wait_for_log(qr/"zklock worker" \(PID \d+\) was terminated by signal 6/, $log_at), 'a signal of another process ends the worker');
$node->wait_until_connected;
$_->{node}->stop foreach @servers;
done_testing();
