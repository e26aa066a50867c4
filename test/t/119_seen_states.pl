
# What the log and zk_status say of a ZooKeeper that is away, of a connection that is lost, and of
# locks that are in doubt: once each, and with the reason.

use strict;
use warnings;

use IO::Socket::INET;
use IO::Socket::UNIX;
use Time::HiRes qw(time usleep);

use ZklockTest;

my $zk = ZooKeeper->new;
my %settings = ('zklock.session_timeout' => '15s', 'zklock.linger' => 0);
my $node = ZklockNode->started('a', $zk, %settings);
my $idle = ZklockNode->started('idle', $zk, %settings);

sub times_logged { my ($who, $what, $at) = @_; return scalar(() = substr(slurp_file($who->logfile), $at) =~ /$what/g); }
sub log_end { my ($who) = @_; return -s $who->logfile; }
sub wait_for_state { my ($who, $state) = @_; return $who->wait_until("SELECT state = '$state' FROM zk_status"); }

my %says = (
	missing => qr/LOG:  could not connect to ZooKeeper, will keep trying\n/,
	lost => qr/LOG:  lost the connection to ZooKeeper\n/,
	doubt => qr/LOG:  locks are in doubt\n/,
	certain => qr/LOG:  locks are no longer in doubt\n/);

# --- never there ---

my $listener = IO::Socket::INET->new(Listen => 1, LocalAddr => '127.0.0.1') or die "could not listen: $!";
my $nowhere = '127.0.0.1:' . $listener->sockport;
close $listener;
my $lonely = ZklockNode->initialized('lonely', undef, %settings, 'zklock.hosts' => $nowhere);
$lonely->start;
$lonely->safe_psql('postgres', 'CREATE EXTENSION zklock');
$lonely->wait_until(q{SELECT last_error IS NOT NULL FROM zk_status});
is($lonely->status('state'), 'none', 'never there: no session');
is($lonely->status('last_error'), "server $nowhere refused the connection", 'the last error says which server, and why');
is($lonely->status('last_error_at BETWEEN pg_postmaster_start_time() AND clock_timestamp()'), 't', 'and since when');
my $first = $lonely->status('last_error_at');
$lonely->wait_until("SELECT last_error_at > '$first'::timestamptz + interval '2 s' FROM zk_status");
is(times_logged($lonely, $says{missing}, 0), 1, 'logged once, however often it is tried');
like(slurp_file($lonely->logfile), qr/$says{missing}.*DETAIL:  The last error was: server \Q$nowhere\E refused the connection\.\n/, 'with the reason');
$lonely->stop;

# --- there, and lost ---

is($node->status(q{state IN ('connected', 'idle'), safe, last_error}), 't|t|', 'no error yet');
my $holder = $node->backend;
$holder->query(acquire('/held'));
my ($at, $idle_at) = (log_end($node), log_end($idle));
$zk->stop;
wait_for_state($node, 'in doubt');
is($node->status('safe'), 'f', 'not safe');
$node->wait_until(q{SELECT last_error ~ 'refused' FROM zk_status});
wait_for_state($idle, 'disconnected');
$idle->wait_until(q{SELECT NOT safe FROM zk_status});
is($idle->status('state'), 'disconnected', 'a server without locks is not in doubt');
is(times_logged($node, $says{lost}, $at), 1, 'the worker logs the loss');
like(substr(slurp_file($node->logfile), $at), qr/$says{lost}.*DETAIL:  The last error was: .*127\.0\.0\.1:/, 'with the reason');
$node->wait_for_log($says{doubt}, $at);
$zk->start;
$_->wait_until_connected foreach $node, $idle;
$node->wait_for_log($says{certain}, $at);
is($holder->query(held('/held')), 't', 'back: the lock is held');
is(times_logged($node, $says{$_}, $at), 1, "$_: once") foreach qw(doubt certain);
is(times_logged($node, $says{missing}, $at), 1, 'the worker has said once that no server answers');
is(times_logged($idle, $says{$_}, $idle_at), 0, "$_: nothing of that without locks") foreach qw(doubt certain);
ok($node->status('last_error IS NOT NULL'), 'the last error can still be seen');

# The worker has logged each message once.
foreach ([ $node, $at ], [ $idle, $idle_at ])
{
	my ($who, $since) = @$_;
	my $worker = $who->worker_pid;
	my %lines;
	$lines{$_}++ foreach substr(slurp_file($who->logfile), $since) =~ /(\[$worker\].*? LOG:  .*)/g;
	cmp_ok(scalar(grep { /connect/ } keys %lines), '>=', 2, 'the worker logs the outage: ' . $who->name);
	is(join("\n", grep { $lines{$_} > 1 } sort keys %lines), '', 'and repeat nothing');
}

# --- silent: the connection is there, and nothing comes over it ---

$at = log_end($node);
$zk->pause;
wait_for_state($node, 'in doubt');
isnt($idle->status(q{CASE WHEN safe THEN 'safe' ELSE state END}), 'connected', 'silent: a session that is not safe does not count as connected');
$zk->resume;
wait_for_state($node, 'connected');
# Locks are in doubt half a second before ZooKeeper may expire the session.
$node->wait_for_log(qr/$says{certain}|LOG:  the ZooKeeper session has expired\n/, $at);
like(substr(slurp_file($node->logfile), $at), qr/$says{lost}.*DETAIL:  .*did not answer in time/, 'the reason is that there was no answer');
$holder->query(q{SELECT zk_lock_release_all()});

# --- a worker that restarts, while the postmaster is busy with a connection that stays ---

# PostgreSQL 15 misses the end of the worker in one of twenty rounds, and would then sleep for half a minute.
my ($late, @kept) = (0);
foreach my $round (1 .. 40)
{
	my $worker = $node->worker_pid;
	@kept = ();
	kill 'TERM', $worker;
	my $began = time;
	foreach (1 .. 3)
	{
		usleep(int rand 3000);
		push @kept, IO::Socket::UNIX->new(Peer => $node->host . '/.s.PGSQL.' . $node->port);
	}
	$holder->wait_until("SELECT worker_pid <> $worker FROM zk_status");
	$late++ if time - $began > 15;
}
is($late, 0, 'a worker is soon back');

done_testing();
