builtin.module @net attributes {module.name = "net", t.list = [1 : i64, -2 : i64, 300 : i64], t.map = {a = "x", b}} {
  func.func private @ext(i32) -> f32 loc("ext")
  func.func @loop(%a: i32 loc("a"), %b: i1 loc("b"("file.py":3:7))) -> i32 {
    "t.br"(%a)[^bb2] : (i32) -> () loc("jump")
  ^bb1(%x: i32 loc("x"), %y: f32 loc("y")):
    "t.cond"(%b, %w, %y)[^bb1, ^bb3] {sizes = array<i32: 1, 2, 0>} : (i1, i32, f32) -> () loc("cond")
  ^bb2(%z: i32 loc("z")):
    %w = "t.add"(%z, %z) {overflow = true} : (i32, i32) -> i32 loc("w")
    %y2 = "t.mk"() {value = 0.5 : f32} : () -> f32 loc(fused["y2", "file.py":4:1])
    "t.br"(%w, %y2)[^bb1] : (i32, f32) -> () loc(callsite("inner" at "outer"))
  ^bb3:
    %c = func.call @loop(%w, %b) : (i32, i1) -> i32 loc("call")
    "t.region"(%c) ({
    ^bb0(%q: i32 loc("q")):
      %v:2 = "t.two"(%q, %c, %a) : (i32, i32, i32) -> (i32, f32) loc("two")
      "t.inner"() ({
        "t.use"(%v#0, %v#1) : (i32, f32) -> () loc("use")
      }, {
      }) : () -> () loc("in")
      "t.end"() : () -> () loc("end")
    }) : (i32) -> () loc("region")
    func.return %c : i32 loc("ret")
  } loc("loop")
  func.func @main(%arg0: tensor<1x3x?x4xf32> loc("in")) -> tensor<*xf32> {
    %0 = "t.quant"(%arg0) : (tensor<1x3x?x4xf32>) -> tensor<1x3x4x4x!quant.uniform<i8:f32, 0.25:3>> loc("q0")
    %1 = "t.axis"(%0) : (tensor<1x3x4x4x!quant.uniform<i8:f32, 0.25:3>>) -> tensor<3x4x!quant.uniform<u8:f32:0, {0.5,0.25:128,2.0}>> loc("q1")
    %2 = "t.cal"(%1) : (tensor<3x4x!quant.uniform<u8:f32:0, {0.5,0.25:128,2.0}>>) -> tensor<3x4x!quant.calibrated<f32<-1.5:2.5>>, 4096 : i64> loc("q2")
    %3 = "t.any"(%2) {d = dense<[[1, -2], [3, 4]]> : tensor<2x2xi8>, e = dense<true> : tensor<20xi1>, f = dense<[1.0, -2.0]> : tensor<2xf16>, s = @net::@main, i = 255 : ui8, n = -7 : si16, x = 5 : index} : (tensor<3x4x!quant.calibrated<f32<-1.5:2.5>>, 4096 : i64>) -> tensor<*xf32> loc("q3")
    func.return %3 : tensor<*xf32> loc("out")
  } loc("main")
  "t.graph"() ({
    %0 = "t.fwd"(%1, %0) : (i32, i32) -> i32 loc("f0")
    %1 = "t.fwd"(%0, %1) : (i32, i32) -> i32 loc("f1")
    "t.nest"() ({
      "t.use"(%2) : (i32) -> () loc("u")
    }) : () -> () loc("nest")
    %2 = "t.mk"() : () -> i32 loc("f2")
  }) : () -> () loc("graph")
} loc("net")
