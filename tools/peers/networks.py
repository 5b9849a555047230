"""The networks that tools/peers measures and checks, by torchvision's names or our own (cpu_networks.py). Listing them
needs no PyTorch.
"""
import argparse

# Defaults of bench_cpu_peers.py and bench_start.py; bench_gpu_peers.py uses the five of ON_GPU.
CLASSIC = ("vgg16", "resnet18", "resnet50", "googlenet", "densenet121", "squeezenet1_1", "shufflenet_v2_x1_0", "mobilenet_v2",
           "mobilenet_v3_large", "efficientnet_b0", "efficientnet_lite0")  # fmt: skip
ON_GPU = ("resnet50", "mobilenet_v2", "squeezenet1_1", "vgg16", "resnet18")
# Networks with other features: 1x7 and 7x1 kernels, groups, dilation, 7x7 depthwise, odd widths, large images,
# transposed convolutions, segmentation, super-resolution.
OTHERS = ("inception_v3", "resnext50_32x4d", "regnet_y_400mf", "regnet_x_800mf", "mnasnet0_75", "shufflenet_v2_x0_5",
          "resnet18_large", "resnet50_dilated", "mobilenet_v2_035", "convnext_tiny", "lraspp", "unet", "yolo", "espcn")  # fmt: skip

# torchvision_check.py exports these.
CLASSIFICATION = """alexnet vgg11 vgg11_bn vgg16 resnet18 resnet50 resnext50_32x4d wide_resnet50_2 squeezenet1_0
squeezenet1_1 densenet121 googlenet inception_v3 mobilenet_v2 mobilenet_v3_small mobilenet_v3_large mnasnet1_0
efficientnet_b0 efficientnet_v2_s shufflenet_v2_x1_0 regnet_y_400mf regnet_x_400mf convnext_tiny vit_b_16 swin_t
swin_v2_t maxvit_t""".split()
SEGMENTATION = """deeplabv3_mobilenet_v3_large deeplabv3_resnet50 fcn_resnet50 lraspp_mobilenet_v3_large""".split()
DETECTION = """ssd300_vgg16 ssdlite320_mobilenet_v3_large retinanet_resnet50_fpn fcos_resnet50_fpn
fasterrcnn_mobilenet_v3_large_320_fpn fasterrcnn_resnet50_fpn""".split()

# A draw from timm, of all kinds: residual, dense, grouped, re-parameterized, searched, attention among convolutions.
TIMM = ["timm/" + name for name in """resnet26d seresnext50_32x4d ecaresnet26t skresnet34 resnest14d res2net50_26w_4s resnetv2_50
cspresnext50 darknet53 dla34 hrnet_w18 inception_v4 xception41 dpn68 ese_vovnet19b_dw hgnetv2_b0 regnetz_b16 repvgg_a0
mobileone_s0 mixnet_s fbnetv3_b lcnet_050 ghostnetv2_100 rexnet_100 eca_nfnet_l0 inception_next_atto
mobilenetv4_hybrid_medium efficientvit_b1 efficientformerv2_s0 edgenext_xx_small poolformerv2_s12 convnextv2_atto levit_128
davit_tiny pvt_v2_b1 caformer_s18 coatnet_0_rw_224 nextvit_small focalnet_tiny_srf fastvit_t8""".split()]

# Side, or height and width, of images other than 224.
SIZES = {"inception_v3": 299, "ssd300_vgg16": 300, "ssdlite320_mobilenet_v3_large": 320,
         "swin_v2_t": 256,  # 224 is padded with zeros, whose norm of 0 gives NaN in float16
         "resnet18_large": (600, 800), "mobilenet_v2_035": 160, "lraspp": 320, "unet": 256, "yolo": 416, "espcn": (360, 640)}  # fmt: skip

# Our name: torchvision's name and arguments.
VARIANTS = {"resnet50_dilated": ("resnet50", {"replace_stride_with_dilation": [False, True, True]}),
            "mobilenet_v2_035": ("mobilenet_v2", {"width_mult": 0.35}), "resnet18_large": ("resnet18", {}),
            "lraspp": ("lraspp_mobilenet_v3_large", {"weights_backbone": None})}  # fmt: skip


def listed(text):
    """Names between commas; one in capitals is a list of this file."""
    for name in text.split(","):
        if name.isupper() and not isinstance(globals().get(name), (list, tuple)):
            raise argparse.ArgumentTypeError(f"no list of networks is called {name}")
    return [each for name in text.split(",") for each in (globals()[name] if name.isupper() else [name])]


def size_of(name):
    """Height and width."""
    size = SIZES.get(name, 224)
    if name.startswith("timm/"):
        import timm

        config = timm.get_pretrained_cfg(name.removeprefix("timm/"))
        if config is not None and config.fixed_input_size:
            return config.input_size[1:]
    return size if isinstance(size, tuple) else (size, size)


def torchvision_network(name, **more):
    """With random weights. timm/NAME is a network of the package timm."""
    if name.startswith("timm/"):
        import timm

        return timm.create_model(name.removeprefix("timm/"), **more)
    import torchvision

    name, arguments = VARIANTS.get(name, (name, {}))
    if name in ("googlenet", "inception_v3"):
        arguments = {"aux_logits": False, "init_weights": False}
    return torchvision.models.get_model(name, weights=None, **arguments, **more)
