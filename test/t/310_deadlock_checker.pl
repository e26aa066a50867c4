
# The checker of deadlocks between servers: for each of its rules, histories that are wrong on
# purpose, and right histories that differ from them by little.

use strict;
use warnings;

use Test::More;

use DeadlockHistory;

# Each line "[MS] CLIENT EVENT ..."; without a time, a second after the line before.  A client is a
# letter for its server, and a digit.
sub lines
{
	my $t = 0;
	my @lines = ('0 * - config bound=5000 race=100 turn=900');
	foreach (@_)
	{
		my ($ms, $server, $pid, $rest) = /^(?:(\d+) )?([a-z*])(\d|-) (.*)/ or die $_;
		$t = $ms // $t + 1000;
		push @lines, $t * 1000 . " $server $pid $rest";
	}
	return @lines;
}

sub is_right
{
	my ($what, @history) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is_deeply([ DeadlockHistory->new(lines(@history))->problems ], [], "right: $what");
}

sub is_wrong
{
	my ($what, $rule, @history) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my @problems = DeadlockHistory->new(lines(@history))->problems;
	is(scalar @problems, 1, "wrong: $what") or diag explain \@problems;
	return like($problems[0] // '', $rule, "wrong: $what: is said");
}

# Acquired at once
sub has { my ($client, $what) = @_; return ("$client want $what", "$client granted"); }

# --- what is a history ---

is_right('nothing');
is_right('a lock', has('a1', '/p lock'), 'a1 release /p', has('b1', '/p lock'), 'b1 end');
is_wrong('an unknown event', qr/^history: line 2/, 'a1 wants /p lock');
is_wrong('a field is missing', qr/^history: line 2/, 'a1 want /p');
is_wrong('two at a time', qr/^history: a:1 asks twice/, 'a1 want /p lock', 'a1 want /q lock');
is_wrong('an answer to nothing', qr/^history: a:1 was not asked/, 'a1 granted');
is_wrong('a release of nothing', qr/^history: a:1 does not hold/, 'a1 release /p');

# --- mutexes ---

my @two = (has('a1', '/p lock'), has('b1', '/q lock'), 'a1 want /q lock', 'b1 want /p lock');
my @broken = (@two, 'b1 deadlock');

is_right('broken in time', @broken, 'b1 end', 'a1 granted');
is_right('either may end', @two, 'a1 deadlock');
is_right('a timeout breaks it', @two, 'a1 refused', 'a1 end', 'b1 granted');
is_wrong('without a circle', qr/^false: c:1 /, has('a1', '/p lock'), 'c1 want /p lock', 'c1 deadlock');
is_wrong('a queue is no circle', qr/^false: c:1 /, has('a1', '/p lock'), has('b1', '/q lock'), 'c1 want /p lock',
	'b1 want /p lock', 'c1 deadlock');
is_wrong('two that only queue', qr/^false: c:1 /, has('a1', '/p lock'), 'b1 want /p lock', 'c1 want /p lock',
	'c1 deadlock');
is_wrong('behind a circle', qr/^false: c:1 /, @two, has('c1', '/r lock'), 'c1 want /p lock', 'c1 deadlock',
	'b1 deadlock');
is_wrong('it was over before', qr/^false: c:1 /, has('a1', '/p lock'), has('c1', '/q lock'), 'a1 want /q lock',
	'a1 refused', 'c1 want /p lock', 'c1 deadlock');
is_wrong('it was released before', qr/^false: b:1 /, has('a1', '/p lock'), has('b1', '/q lock'), 'b1 release /q',
	'a1 want /q lock', 'b1 want /p lock', 'b1 deadlock');
is_wrong('a commit releases', qr/^false: b:1 /, has('a1', '/p lock'), has('b1', '/q lock'), 'b1 end',
	'a1 want /q lock', 'b1 want /p lock', 'b1 deadlock');
is_right('it was there for a moment', @two, 'a1 refused', 'a1 end', 'b1 deadlock');
is_right('one after the other', @broken, 'b1 end', 'a1 granted', 'a1 end', @broken, 'b1 end');

is_right('just in time', @two, '9000 b1 deadlock');
is_right('as long as it takes, without a circle', has('a1', '/p lock'), 'b1 want /p lock', '99000 b1 granted');
is_wrong('late', qr/^slow: a deadlock stood for 5001 ms: a:1 .*, b:1 /, @two, '11001 b1 deadlock');
is_wrong('a timeout was first', qr/^slow/, @two, '11001 b1 refused');
is_wrong('never', qr/^stays: .* a:1 .*, b:1 /, @two, '99000 c1 end');
is_right('the worker stood still', @two, '6500 a- stop', '20000 a- go', '24000 b1 deadlock');
is_right('ZooKeeper stood still', @two, '6500 *- stop', '20000 *- go', '24000 b1 deadlock');
is_right('it still stands', @two, '6500 a- stop', '99000 c1 end');
is_wrong('that was long ago', qr/^slow/, @two, '6500 a- stop', '20000 a- go', '25001 b1 deadlock');
is_wrong('another stood still', qr/^slow/, @two, '6500 c- stop', '20000 c- go', '24000 b1 deadlock');

is_wrong('two victims', qr/^twice: b:1 and a:1 /, @broken, 'a1 deadlock');
is_right('two circles, two victims', @broken, 'b1 end', 'a1 granted', has('b1', '/q2 lock'),
	'b1 want /p lock', 'a1 want /q2 lock', 'a1 deadlock');

# --- which members are named ---

is_right('both are named', @two, 'b1 deadlock held_by=a:1,b:1');
is_wrong('another one is', qr/^detail: b:1 names c:1/, @two, 'b1 deadlock held_by=a:1,c:1');

# --- more than two ---

my @three = (has('a1', '/p lock'), has('b1', '/q lock'), has('c1', '/r lock'), 'a1 want /q lock', 'b1 want /r lock',
	'c1 want /p lock');
is_right('three', @three, 'a1 deadlock held_by=a:1,b:1,c:1');
is_wrong('three, two victims', qr/^twice/, @three, 'a1 deadlock', 'a1 end', 'c1 deadlock');

# --- within a server ---

my @rows = (has('a1', 'x row'), has('a2', '/p lock'), has('b1', '/q lock'), 'a2 want x row', 'a1 want /q lock',
	'b1 want /p lock');
is_right('through a row', @rows, 'a2 deadlock');
is_right('a row of PostgreSQL alone', has('a1', 'x row'), has('a2', 'y row'), 'a1 want y row', 'a2 want x row',
	'a2 deadlock');
is_wrong('a row of another server', qr/^false/, has('a1', 'x row'), has('b2', 'y row'), 'a1 want y row',
	'b2 want x row', 'b2 deadlock');

# --- read-write locks ---

is_wrong('readers share', qr/^false/, has('a1', '/p lock'), has('a2', '/q read'), has('b1', '/q read'),
	'a1 want /q read', 'b1 want /p lock', 'b1 deadlock');
my @between = (has('a1', '/q read'), has('b1', '/p lock'), 'c1 want /q write', 'b1 want /q read', 'a1 want /p lock');
is_right('a writer between two readers', @between, 'a1 deadlock');
is_wrong('which stay', qr/^stays/, @between, '99000 d1 end');
is_right('the writer goes', @between, 'c1 refused', 'b1 granted');
my @readers = (has('a1', '/p lock'), has('b1', '/q read'), has('c1', '/q read'), 'a1 want /q write', 'b1 want /p lock',
	'c1 want /p lock');
is_right('a writer and two readers', @readers, 'c1 deadlock', 'c1 end', 'b1 deadlock');
is_right('or the writer', @readers, 'a1 deadlock');
is_wrong('each has its time', qr/^slow/, @readers, 'c1 deadlock', 'c1 end', '20000 b1 deadlock');
is_right('nearly at the same time, the writer may have been first', has('a1', '/q read'), has('b1', '/p lock'),
	'a1 want /p lock', '9000 b1 want /q read', '9050 c1 want /q write', 'b1 deadlock');
is_wrong('later, it was not', qr/^false/, has('a1', '/q read'), has('b1', '/p lock'), 'a1 want /p lock',
	'9000 b1 want /q read', '9150 c1 want /q write', 'b1 deadlock');
my @joins = (has('a1', '/q read'), has('b1', '/p lock'), 'a1 want /p lock');
my @later = ('9000 b1 want /q read', '9150 c1 want /q write', 'b1 deadlock');
is_right('its server may have queued again', has('b2', '/q read'), @joins, @later);
is_right('as it waited with a ticket of another client', @joins, '8900 b2 want /q write', @later);
is_wrong('but that had left long before', qr/^false/, has('b2', '/q read'), 'b2 end', @joins, @later);
is_wrong('or came later', qr/^false/, @joins, @later[ 0, 1 ], '9300 b2 want /q read', $later[2]);
is_wrong('or used another lock', qr/^false/, has('b2', '/r read'), @joins, @later);
is_wrong('or was of another server', qr/^false/, has('d1', '/q read'), @joins, @later);
is_wrong('and not so much later', qr/^false/, has('b2', '/q read'), @joins, '9000 b1 want /q read', '9950 c1 want /q write',
	'b1 deadlock');
is_right('its server may have stood still', '1 b- stop', @joins, $later[0], '9100 b- go', @later[ 1, 2 ]);
is_right('or ZooKeeper', @joins, '8500 *- stop', '8600 *- go', @later);
is_wrong('but not long before', qr/^false/, '1 b- stop', '2 b- go', @joins, @later);
is_wrong('nor another server', qr/^false/, '1 c- stop', @joins, @later);
my @before = (@joins, '9000 b1 want /q read', '9050 c1 want /q write', '9500 a1 deadlock', '9600 a1 end');
is_right('the first one in the queue', @before, '9700 c1 granted', '9800 c1 end', '9900 b1 granted');
is_right('or gave up', @before, '9700 c1 refused', '9700 b1 granted');
is_wrong('was not', qr/^false: a:1 /, @before, '9700 b1 granted', '9900 c1 granted');
is_wrong('and waits on', qr/^false: a:1 /, @before, '9700 b1 granted');
is_right('and need not have been', has('a1', '/q read'), has('b1', '/p lock'), 'a1 want /p lock',
	'9000 b1 want /q read', '9050 c1 want /q write', '99000 b1 granted');

# --- semaphores ---

my @leases = (has('a1', '/s lease 2 3'), has('b1', '/s lease 1 3'), 'a1 want /s lease 1 3');
is_wrong('one is missing, but not for ever', qr/^false/, @leases, 'a1 deadlock');
is_right('both want one more', @leases, 'b1 want /s lease 1 3', 'b1 deadlock');
is_wrong('there is a fourth', qr/^false/, (map { s/ 3$/ 4/r } @leases), 'b1 want /s lease 1 4', 'b1 deadlock');
is_right('its own are in the way', has('a1', '/s lease 2 3'), 'a1 want /s lease 2 3', 'a1 deadlock');
my @queue = (has('c1', '/s lease 1 3'), has('b1', '/p lock'), 'a1 want /s lease 3 3', 'b1 want /s lease 1 3',
	'c1 want /p lock');
is_right('three leases before one', @queue, 'c1 deadlock');
is_wrong('and it stays', qr/^stays/, @queue, '99000 d1 end');
is_wrong('two leases before one', qr/^false/, (map { s/lease 3/lease 2/r } @queue), 'c1 deadlock');
my @leave = (@queue, 'c1 deadlock', 'c1 end');
is_right('the three come first', @leave, 'a1 granted', 'a1 end', 'b1 granted');
is_wrong('the one comes first', qr/^false: c:1 /, @leave, 'b1 granted', 'a1 granted');

my %figures = DeadlockHistory->new(lines(@broken, 'b1 end', 'a1 granted'))->figures;
is_deeply(\%figures, { wants => 4, granted => 3, refused => 0, deadlocks => 1, circles => 1, slowest => 1_000_000,
	overlapping => 0 }, 'what was counted');

done_testing();
