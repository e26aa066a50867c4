
# The first ten minutes: every block of README.md does what it says, as it stands and in its order.
# Those of sh run in the tree, "make install" into a scratch directory; those of sql on the two servers
# of package/try, or, after these are gone, on a server with the configuration in the block of conf.
# The scene of two sessions at the top is played before the servers end.  And package/try, where it is used wrongly.

use strict;
use warnings;

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use IPC::Run;

use Examples;
use ZklockTest;

my $top = abs_path(dirname(__FILE__) . '/../..');
my $stage = PostgreSQL::Test::Utils::tempdir;

# The library is the one under test; building it again would only take time.
local $ENV{ZKLOCK_CONF} = $ENV{TEMP_CONFIG};

sub sh
{
	my ($text, %env) = @_;
	local %ENV = (%ENV, %env);
	IPC::Run::run([ 'bash', '-ec', $text ], '<', \'', '>', \my $out, '2>', \my $err, init => sub { chdir $top or die $! });
	return { out => $out, err => $err, status => $? >> 8 };
}

sub refused
{
	my ($command, $why) = @_;
	my $result = sh("package/try $command");
	isnt($result->{status}, 0, "package/try $command: refused");
	like($result->{err}, $why, "package/try $command: says why");
	return;
}

refused('', qr/^package\/try start$/m);
refused('psql', qr/^package\/try psql NAME/m);
refused('psql north', qr/no servers run; "package\/try start"/);
refused('cut north', qr/no servers run/);
refused('stop', qr/no servers run/);

# The servers that are there at this point of the page.
my ($directory, %node, $port);

sub find_servers
{
	my ($out) = @_;
	if ($out =~ /^the servers run in (\S+);/m)
	{
		$directory = $1;
		refused('start', qr/the servers run already/);
		refused('psql east', qr/no server "east", but north and south/);
		%node = map { $_ => ZklockNode->existing($_, $directory, sh("package/try psql $_ -Atc 'SHOW port'")->{out} =~ s/\n//r) } 'north', 'south';
	}
	elsif ($out =~ /^the servers are gone/m)
	{
		%node = ();
		ok(!-e $directory, 'nothing is left of the servers');
		refused('psql north', qr/no servers run/);
	}
	return;
}

# A scene has a column for each server, whose head is the server's name.  A line with a command of package/try is for
# the shell, and what follows a statement that fails is the error that psql shows.
sub play
{
	my ($scene, $where) = @_;
	my ($head, undef, @lines) = split /\n/, $scene;
	my ($left, $right) = split ' ', $head;
	my $width = index $head, $right;
	my %session = map { $_ => $node{$_}->backend } $left, $right;
	my $errors = 0;

	while (defined(my $line = shift @lines))
	{
		if ($line =~ /(package\/try \w+ \w+)/)
		{
			is(sh($1)->{status}, 0, "$where: $1");
			next;
		}
		my $name = substr($line, 0, $width) =~ /\S/ ? $left : $right;
		my ($text, $comment) = $line =~ /^\s*(.*?;)(?:\s*-- (.*))?$/ or return fail("$where: a statement: $line");
		my $result = $session{$name}->run($text);
		is($result->{out}, $1, "$where: $text on $name") if ($comment // '') =~ /^(t|f)\b/;
		while (@lines && $lines[0] =~ /^(?:ERROR|DETAIL):  (.*)$/)
		{
			like($result->{err}, qr/\Q$1\E/, "$where: $text on $name: $1");
			shift @lines;
			$errors++;
			$result->{errcode} = '';
		}
		is($result->{errcode}, '', "$where: $text on $name: no other error");
	}
	is($errors, 2, "$where: the commit is refused, with the reason");
	sh("package/try heal $left");
	$node{$left}->wait_until('SELECT safe FROM zk_status', "$where: $left is back");
	$_->quit foreach values %session;
	return;
}

my (%count, $scene);
foreach my $section (Examples::sections_of("$top/README.md", 'README.md'))
{
	my %session;
	foreach my $block (@{ $section->{blocks} })
	{
		my ($language, $text) = @$block{ 'language', 'text' };
		my $where = "README.md:$block->{line}, $section->{name}";
		$count{$language}++;
		$scene = $text if $language eq 'text' && !defined $scene;
		if ($language eq 'sh')
		{
			if ($text =~ /try stop/)
			{
				$_->quit foreach values %session;
				%session = ();
				refused('cut east', qr/no server "east"/);
				play($scene, 'README.md: the scene');
			}
			my $result = sh($text, DESTDIR => $stage);
			is($result->{status}, 0, $where) or diag $result->{out}, $result->{err};
			find_servers($result->{out});
		}
		elsif ($language eq 'conf')
		{
			my $node = $node{north} = ZklockNode->new('installed');
			$node->init;
			$node->append_conf('postgresql.conf', $text);
			ok($node->start, "$where: a server starts with it");
		}
		elsif ($language eq 'sql')
		{
			$session{north} //= $node{north}->backend;
			$session{south} //= $node{south}->backend if $node{south};
			my $session = $session{ $block->{where} eq 'here' ? 'north' : 'south' };
			Examples::run_statement($_, $session, $session{north}, $node{south}, "README.md:$_->{line}, $section->{name}")
			  foreach @{ $block->{statements} };
		}
		elsif ($language ne 'text')
		{
			fail("$where: a block of sh, sql, conf or text");
		}
	}
	$_->quit foreach values %session;
}

is($count{text}, 2, 'a scene, and what psql prints');
cmp_ok($count{$_}, '>=', $_ eq 'conf' ? 1 : 3, "blocks of $_") foreach 'sh', 'sql', 'conf';
is(join(' ', sort map { s{.*/}{}r } split /\n/, sh("find $stage -name 'zklock*' -type f")->{out}),
	'zklock--1.0--1.1.sql zklock--1.0.sql zklock--1.1--1.2.sql zklock--1.2--1.1.sql zklock-run zklock-run.1 zklock.control zklock.so', 'zklock was installed');

$node{north}->stop;
done_testing();

# However the test ends.
END
{
	my $status = $?;
	sh('package/try stop') if %node && $directory && -e $directory;
	$? = $status;
}
