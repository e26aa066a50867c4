
# A semaphore whose limit is a SharedCount of a service on Curator: both write it, and both follow.
# Then it changes at random, while two servers and the service acquire leases; no list that is newer
# than a change grants beyond it.

use strict;
use warnings;

use POSIX ();
use Time::HiRes qw(usleep);

use History;
use InteropPeer;
use ZklockTest qw(!acquire !release);

my $zk = ZooKeeper->new;
my $curator = InteropPeer->curator($zk, session_timeout => 10);
my %settings = ('zklock.connection_timeout' => '1min');
my ($node_a, $node_b) = map { ZklockNode->started($_, $zk, %settings) } 'a', 'b';
my ($a1, $b1) = map { $_->backend } $node_a, $node_b;
my ($c1, $c2) = map { $curator->actor($_) } 'c1', 'c2';

sub acquire { my ($path) = @_; return "SELECT zk_semaphore_acquire('$path', NULL, '0')"; }
sub release { my ($path) = @_; return "SELECT zk_semaphore_release('$path')"; }
sub set_limit { my ($path, $n) = @_; return "SELECT zk_semaphore_set_limit('$path', $n)"; }
sub wait_for_count { my ($path, $n) = @_; return $zk->wait_until(sub { $c1->query("count /zklock$path") eq $n }, "Curator to hear of $n"); }

# --- both write it, and both follow ---

$a1->query(set_limit('/both', 2));
is($c1->query('count /zklock/both'), '2', 'Curator reads what zklock has stored');
is($c1->query('acquire semaphore=limit /zklock/both 10000'), 't', 'one lease for Curator');
is($b1->query(acquire('/both')), 't', 'and one for zklock');
is($a1->query(acquire('/both')), 'f', 'that is all for zklock');
is($c2->query('acquire semaphore=limit /zklock/both 100'), 'f', 'and for Curator');
is($c1->query('set-count /zklock/both 3'), 't', 'Curator raises it');
$a1->wait_until(acquire('/both'));
is($a1->query(q{SELECT zk_semaphore_limit('/both')}), '3', 'zklock follows');
$a1->query(set_limit('/both', 1));
wait_for_count('/both', 1);
$_->query(release('/both')) foreach $a1, $b1;
$zk->wait_until(sub { @{ $zk->children('/zklock/both/leases') } == 1 }, 'the lease of Curator to be the last one');
is($c1->query('acquire semaphore=limit /zklock/both 100'), 'f', 'zklock lowers it: Curator follows');
is($b1->query(acquire('/both')), 'f', 'and so does zklock');
$c2->send('acquire semaphore=limit /zklock/both -');
$zk->wait_until(sub { @{ $zk->children('/zklock/both/leases') } == 2 }, 'Curator to wait');
$a1->query(set_limit('/both', 2));
$c1->query('release semaphore=limit /zklock/both');
is($c2->answer, 't', 'Curator has what it waited for');
$c2->query('release semaphore=limit /zklock/both');

# --- at random ---

# Each backend of zklock appends a line for each time that it held leases: when this began and ended,
# the greatest czxid of the leases' znodes, and how many they were.
my $history = History->new;
my $file = $history->directory . '/leases';
append_to_file($file, '');
my $most = 4;

sub work
{
	my ($node, $seed) = @_;
	my $pid = fork // die "fork: $!";
	return $pid if $pid;
	my $is_ok = eval {
		srand $seed;
		my $backend = $node->backend;
		open my $lines, '>>', $file or die $!;
		until (-e $history->directory . '/stop')
		{
			my $quantity = 1 + int rand 2;
			my $timeout = rand() < 0.3 ? q{'0'} : rand() < 0.5 ? q{'300 ms'} : 'NULL';
			my $acquire = $backend->run("SELECT zk_semaphore_acquire('/random', NULL, $timeout, $quantity)");
			die $acquire->{err} unless $acquire->{errcode} =~ /^(?:08006|)$/;		# after a standstill, nothing is known
			next if $acquire->{errcode} || $acquire->{out} ne 't';
			my $czxid = $backend->query(q{SELECT zk_lock_token('/random') >> 16});
			my $begin = History::clock();
			usleep(1000 + int rand 30_000);
			syswrite $lines, join(' ', $begin, History::clock(), $czxid, $quantity) . "\n" or die $!;
			$backend->query("SELECT zk_semaphore_release('/random', $quantity)");
		}
		$backend->quit;
		1;
	};
	append_to_file($history->directory . '/error', $@) unless $is_ok;
	POSIX::_exit($is_ok ? 0 : 1);
}

$a1->query(set_limit('/random', $most));
my @limits = ([ $zk->exists('/zklock/random/limit')->{mzxid}, $most, 0 ]);
my @pids = map { work($_ % 2 ? $node_a : $node_b, $_) } 1 .. 6;
$history->hammer($curator->actor($_), 'semaphore=limit', '/zklock/random', hold_us => 5000) foreach 'c3', 'c4';

# Only this process writes the limit, so the znode says which of its writes was the last.
sub change_to
{
	my ($n) = @_;
	my $at = History::clock();
	(rand() < 0.5 ? $a1 : $b1)->query(set_limit('/random', $n));
	push @limits, [ $zk->exists('/zklock/random/limit')->{mzxid}, $n, $at ];
	return;
}
srand 17;
my $changes = 0;
my @lines;
$history->wait_until(
	sub {
		change_to(rand() < 0.2 ? 0 : 1 + int rand $most);
		usleep(int rand 200_000);
		@lines = split /\n/, slurp_file($file);
		die slurp_file($history->directory . '/error') if -e $history->directory . '/error';
		return ++$changes >= 150 && @lines > 300 && $history->each_has(10, 'c3', 'c4');
	},
	'many changes of the limit');
change_to($most);
$history->stop;
waitpid $_, 0 foreach @pids;
is(-e $history->directory . '/error' ? slurp_file($history->directory . '/error') : '', '', 'no backend had an error');
@lines = map { [ split / / ] } split /\n/, slurp_file($file);
note scalar(@lines) . " times of zklock, $changes changes, Curator: " . $history->summary;

# By the newest of its znodes.  The list that granted it is newer than that znode; so the limit was
# one of those from then on that had been written before the grant.
sub allowed
{
	my ($begin, $czxid) = @_;
	my ($first) = grep { $limits[$_][0] <= $czxid } reverse 0 .. $#limits;
	my $allowed = -1;
	foreach my $limit (@limits[ $first .. $#limits ])
	{
		$allowed = $limit->[1] if $limit->[1] > $allowed && $limit->[2] < $begin;
	}
	return $allowed;
}

# Leases with older znodes that are still held were there when the list was.
my ($judged, @problems);
foreach my $time (@lines)
{
	my ($begin, $end, $czxid, $quantity) = @$time;
	my $held = $quantity;
	$held += $_->[3] foreach grep { $_->[0] < $begin && $_->[1] > $begin && $_->[2] < $czxid } @lines;
	my $allowed = allowed($begin, $czxid);
	$judged += $allowed < $most;
	push @problems, "$held leases, and the limit was $allowed: @$time" if $held > $allowed;
}
is(scalar(@problems), 0, 'no list that is newer than a change grants beyond it') or diag join "\n", @problems;
cmp_ok($judged, '>', 30, "$judged of them while it was lowered");

# Curator goes by what its listener has heard last, which was a limit once.
my @all = ((map { { begin => $_->[0], end => $_->[1], n => $_->[3] } } @lines),
	map { { begin => $_->{begin}, end => $_->{end}, n => $_->{mode} } } $history->records);
my @over;
foreach my $one (@all)
{
	my $sum = 0;
	$sum += $_->{n} foreach grep { $_->{begin} <= $one->{begin} && $_->{end} > $one->{begin} } @all;
	push @over, "$sum leases at $one->{begin}" if $sum > $most;
}
is(scalar(@over), 0, 'all together are never beyond the greatest') or diag join "\n", @over;
$zk->wait_until(sub { !@{ $zk->children('/zklock/random/leases') } }, 'all leases to go');

# The judge finds what is wrong.
@limits = ([ 10, 4, 0 ], [ 20, 1, 100 ], [ 30, 3, 200 ]);
is(allowed(150, 15), 4, 'an older znode: the older limit');
is(allowed(150, 25), 1, 'a newer one: the lowered one');
is(allowed(250, 25), 3, 'raised before the grant');

$_->quit foreach $a1, $b1;
foreach my $node ($node_a, $node_b)
{
	$node->stop;
	unlike(slurp_file($node->logfile), qr/PANIC|TRAP|terminated by signal/, $node->name . ': a quiet log');
}
done_testing();
