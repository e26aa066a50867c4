
# How many requests of one role are on their way to ZooKeeper, alone and while another role needs it
# too: see src/worker/rolewindow.h.  ZooKeeper is paused, so nothing that is sent is answered.

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(time);

use PostgreSQL::Test::Utils;

use ZklockNode;
use ZooKeeper;

my $zk = ZooKeeper->new;
my $node = ZklockNode->started('n', $zk,
	'zklock.session_timeout' => '60s',
	'zklock.connection_timeout' => '60s',
	'zklock.linger' => 0);
$node->safe_psql('postgres', 'CREATE ROLE one LOGIN; CREATE ROLE other LOGIN');
my $one = $node->backend(extra_params => [ '-U', 'one' ]);
my @ones = map { $node->backend(extra_params => [ '-U', 'one' ]) } 1 .. 20;
my @others = map { $node->backend(extra_params => [ '-U', 'other' ]) } 1 .. 2;
my $number = 0;

# The directories above are there, so a new lock is a create of its directory and one of its znode.
$one->query("SELECT zk_lock_acquire('/dir/first')");
$one->query('SELECT zk_lock_release_all()');

sub acquire { ++$number; return "SELECT zk_lock_acquire('/dir/$number')"; }

sub multilock
{
	++$number;
	return "SELECT zk_multilock_acquire(array_agg('/dir/$number.' || i)) FROM generate_series(1, 60) AS i";
}

sub wanted { my ($n) = @_; return $node->wait_until("SELECT count(*) = $n FROM zk_locks"); }

# Returns how many requests the worker sends for what role "one" wants, while ZooKeeper is paused and
# another session has just requested a lock: a hash with its sessions and what each does.  undef:
# this was so slow that the other session's request may have been forgotten.
sub sent_beside
{
	my ($other, %does) = @_;
	my $begin = time;
	$other->[0]->send(acquire());
	wanted(1);
	my $before = $node->status('requests');
	foreach my $i (0 .. $does{sessions} - 1) { $ones[$i]->send($does{sql}->()); }
	wanted(1 + $does{locks});

	# The worker takes up what it is asked in the order of asking.
	my $asked = $node->status('requests');
	my $seconds = time - $begin;
	$other->[1]->send(acquire());
	$node->wait_until("SELECT requests > $asked FROM zk_status");
	my $sent = $node->status('requests') - $before;
	$zk->resume;
	$_->result foreach @$other, @ones[ 0 .. $does{sessions} - 1 ];
	$_->query('SELECT zk_lock_release_all()') foreach @$other, @ones[ 0 .. $does{sessions} - 1 ];
	wanted(0);
	return $seconds < 0.9 ? $sent : undef;
}

sub sent
{
	my ($other, %does) = @_;
	foreach (1 .. 20)
	{
		# The past is forgotten after a second.
		$node->wait_until("SELECT clock_timestamp() > now_then + '1.1 s' FROM (SELECT max(state_change) AS now_then FROM pg_stat_activity WHERE usename IN ('one', 'other')) AS a");
		$zk->pause;
		my $sent = sent_beside($other, %does);
		return $sent if defined $sent;
	}
	die 'the machine is too slow';
}

my %many_paths = (sessions => 1, sql => \&multilock, locks => 60);
my %many_sessions = (sessions => 20, sql => \&acquire, locks => 20);
my $alone = sent([ @ones[ 18, 19 ] ], %many_paths);
my $shared = sent(\@others, %many_paths);
note "60 paths: $alone requests are on their way, or $shared beside another role";
cmp_ok($alone, '>=', 16, '60 paths of one role alone: sixteen requests are on their way');
cmp_ok($alone, '<=', 30, '... and not many more');
cmp_ok($shared, '<=', 14, 'beside another role: at most eight in bulk are');

$alone = sent([ $one, $node->backend(extra_params => [ '-U', 'one' ]) ], %many_sessions);
$shared = sent(\@others, %many_sessions);
note "20 sessions: $alone requests are on their way, or $shared beside another role";
cmp_ok($alone, '>=', 40, '20 sessions of one role alone: all that they wait for is on its way');
cmp_ok($shared, '<=', 26, 'beside another role: those of at most eight are');
cmp_ok($shared, '>=', 6, '... and of two, at least');

$_->quit foreach $one, @ones, @others;
$node->stop;
done_testing();
